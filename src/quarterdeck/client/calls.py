"""One call of an operation, which may take several requests. Reads each response and decides; does no I/O."""

import random
import time
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct

from quarterdeck.client.errors import (
    BY_CODE,
    ApiError,
    ConnectionFailed,
    QuarterdeckError,
    SecretLost,
    UnexpectedAnswer,
)
from quarterdeck.client.requests import Request
from quarterdeck.client.retry import Outcome, Policy, may_repeat, retry_after_seconds, wait_seconds
from quarterdeck.core.errors import ErrorCode

T = TypeVar("T")

# For responses without the error envelope, which a proxy in between has sent.
_CODES = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.CONFLICT,
    412: ErrorCode.PRECONDITION_FAILED,
    413: ErrorCode.INVALID_REQUEST,
    426: ErrorCode.CLIENT_OUTDATED,
    429: ErrorCode.TOO_MANY_REQUESTS,
}


class Response(Struct, frozen=True):
    status: int
    # Names are in lower case.
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        return retry_after_seconds(self.headers.get("retry-after"), self.headers.get("date"))


class Retry(Struct, frozen=True):
    """Send the request again after this pause."""

    seconds: float


class _Detail(Struct, frozen=True):
    code: str
    message: str


class _Envelope(Struct, frozen=True):
    error: _Detail


class Call(Generic[T]):
    def __init__(self, request: Request, result_type: type[T], policy: Policy) -> None:
        self.request = request
        self._result_type = result_type
        self._policy = policy
        self._started = time.monotonic()
        self._attempts = 0
        # Whether an earlier attempt without a clear response may have taken effect.
        self._is_effect_unknown = False

    def progressed(self) -> None:
        """An attempt has received a part that the next one continues: the limits of retries count anew."""
        self._attempts = 0
        self._started = time.monotonic()

    def handle(self, response: Response | ConnectionFailed) -> T | Retry:
        """The result of the call, or a retry. Raises the error that ends the call."""
        self._attempts += 1
        if isinstance(response, ConnectionFailed):
            return self._retry(response, Outcome(sent=response.sent))
        if 200 <= response.status < 300:
            try:
                return self._result(response)
            except msgspec.ValidationError as error:
                message = f"This version of the client cannot read the response: {error}."
                raise UnexpectedAnswer(message, status=response.status) from None
            except (msgspec.DecodeError, UnicodeDecodeError):
                return self._retry(ConnectionFailed("The response is incomplete: it is not valid JSON."), Outcome())
        if response.status == 404 and self.request.method == "DELETE" and self._is_effect_unknown:
            return None  # type: ignore[return-value]
        return self._retry(error_from(response), Outcome(status=response.status, retry_after=response.retry_after))

    def _retry(self, error: QuarterdeckError, outcome: Outcome) -> Retry:
        self._is_effect_unknown |= outcome.sent if outcome.status is None else outcome.status >= 500
        if may_repeat(self.request.method, self.request.has_idempotency_key, outcome):
            seconds = wait_seconds(
                self._policy,
                attempts=self._attempts,
                elapsed=time.monotonic() - self._started,
                retry_after=outcome.retry_after,
                jitter=random.random(),  # noqa: S311  spreads retries, not a secret
            )
            if seconds is not None:
                return Retry(seconds)
        raise error

    def _result(self, response: Response) -> T:
        if self._result_type is type(None):
            return None
        result = msgspec.json.decode(response.body, type=self._result_type)
        secret = self.request.operation.shown_once
        if secret is not None and "idempotency-replayed" in response.headers and getattr(result, secret) is UNSET:
            raise SecretLost(self.request.operation.name, result)
        return result


def error_from(response: Response) -> ApiError | UnexpectedAnswer:
    try:
        detail = msgspec.json.decode(response.body, type=_Envelope).error
        code, message = detail.code, detail.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        known = ErrorCode.INTERNAL if response.status >= 500 else _CODES.get(response.status)
        if known is None:
            target = response.headers.get("location")
            hint = f" and redirects to {target}. Is base_url correct?" if target else ". Is this a Quarterdeck server?"
            return UnexpectedAnswer(f"The response has status {response.status}{hint}", status=response.status)
        code, message = known, f"The response has status {response.status} and no error message."
    return BY_CODE.get(code, ApiError)(
        message,
        code=str(code),
        status=response.status,
        request_id=response.headers.get("x-request-id"),
        retry_after=response.retry_after,
    )
