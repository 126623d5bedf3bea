"""What the errors of pydantic-ai mean for a run: try again, send fewer turns, or fail."""

from collections.abc import Sequence
from http import HTTPStatus

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelUnavailableError,
)

from quarterdeck.core.secrets import redact
from quarterdeck.core.text_types import storable
from quarterdeck.models.model import ContextExceeded, ModelFailure, RequestRefused, TransientFailure

_REASON_CHARACTERS = 500
_TRANSIENT = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError)
_ABOUT_THE_ACCOUNT = (ModelQuotaExceededError, ModelAuthenticationError, ModelNotFoundError)
_FINAL = (ModelRequestRejectedError, ModelQuotaExceededError)
# Statuses that say something about the account, the model or the moment and nothing about the content of the request:
# docs/decisions/0050.
_NOT_ABOUT_CONTENT = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.PAYMENT_REQUIRED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS,
)


def to_failure(fault: ModelAPIError, model_name: str, secrets: Sequence[str]) -> Exception:
    if isinstance(fault, ModelContextWindowExceededError):
        return ContextExceeded(f"The session is too long for {model_name}: {reason_of(fault, secrets)}")
    status = fault.status_code if isinstance(fault, ModelHTTPError) else None
    reason = f"{model_name} failed{f' with status {status}' if status else ''}: {reason_of(fault, secrets)}"
    # No status: an error inside the stream, or a malformed response.
    transient = isinstance(fault, _TRANSIENT) or status in (None, HTTPStatus.REQUEST_TIMEOUT)
    if transient and not isinstance(fault, _FINAL):
        return TransientFailure(reason, fault.retry_after)
    if status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _NOT_ABOUT_CONTENT:
        return ModelFailure(reason)
    # Some providers say these with status 400.
    return ModelFailure(reason) if isinstance(fault, _ABOUT_THE_ACCOUNT) else RequestRefused(reason)


def reason_of(fault: Exception, secrets: Sequence[str]) -> str:
    """One sentence of bounded length, without secrets."""
    message = _provider_message(fault.body) if isinstance(fault, ModelAPIError) else None
    return clean(message or str(_root(fault)) or type(_root(fault)).__name__, secrets)


def clean(message: str, secrets: Sequence[str]) -> str:
    text = " ".join(message.split())
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    text = storable(redact(text))
    text = text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]}…"
    return text if text.endswith((".", "…", "!", "?")) else f"{text}."


def _root(fault: BaseException) -> BaseException:
    """For a lost connection, the error of the operating system: the libraries only report the loss."""
    if isinstance(fault, ModelConnectionError):
        while fault.__cause__ is not None:
            fault = fault.__cause__
    return fault


def _provider_message(body: object) -> str | None:
    """The message in the body of a provider's error response. Its place differs between providers."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        return message if isinstance(message, str) else None
    return body if isinstance(body, str) else None
