"""One call of an operation, which may take several requests. Reads each response and decides whether and when the
request is sent again. No I/O."""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import NoneType
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

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
from quarterdeck.client.requests import Request, T
from quarterdeck.core.errors import ErrorCode

P = ParamSpec("P")
Item = TypeVar("Item")
Cursor = TypeVar("Cursor")

# Full jitter: the pause is a random part of a time that doubles up to the maximum, so that clients spread out.
_FIRST_SECONDS = 0.25
_MAX_SECONDS = 8.0


class Policy(Struct, frozen=True):
    # Attempts after the first.
    retries: int = 5
    # No attempt starts later than this after the start of the first.
    total_seconds: float = 60.0


class AttemptResult(Struct, frozen=True):
    """The result of one attempt. `status` is None if no complete response arrived; `sent` then says whether the request
    may have reached the server."""

    status: int | None = None
    sent: bool = True
    retry_after: float | None = None


def may_repeat(method: str, has_idempotency_key: bool, outcome: AttemptResult) -> bool:
    """Whether sending the request again may help and cannot take effect twice."""
    is_repeatable = has_idempotency_key or method in ("GET", "DELETE")
    if outcome.status is None:
        return is_repeatable or not outcome.sent
    if outcome.status == 429:
        return True
    if outcome.status == 409:
        # Only a contended request gets a 409 with Retry-After. Nothing of it was stored.
        return outcome.retry_after is not None
    # 408: the body did not arrive in time, for example because the network failed for a while.
    return (outcome.status >= 500 or outcome.status == 408) and is_repeatable


def wait_seconds(
    policy: Policy, *, attempts: int, elapsed: float, retry_after: float | None, jitter: float
) -> float | None:
    """The pause after so many attempts. None: give up. `jitter` is between 0 and 1."""
    if attempts > policy.retries:
        return None
    wait = (retry_after or 0.0) + jitter * backoff_seconds(attempts)
    return wait if elapsed + wait <= policy.total_seconds else None


def backoff_seconds(attempts: int) -> float:
    # The exponent is bounded because 2.0 ** 1024 overflows.
    return min(_MAX_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempts - 1, 32))


def retry_after_seconds(text: str | None, date: str | None, now: datetime | None = None) -> float | None:
    """Retry-After in seconds. A date is compared with the response's `Date` header, because clocks differ."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    until = _parse_date(text)
    if until is None:
        return None
    since = (_parse_date(date) if date else None) or now or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _parse_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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


class Page(Struct, Generic[Item, Cursor], frozen=True):
    """One page of a list. Cursors are ids; those of files are paths."""

    items: list[Item]
    # For the next page. None: this is the last one.
    next_cursor: Cursor | None


ListPage: TypeAlias = Callable[P, Page[Item, Any]]
AsyncListPage: TypeAlias = Callable[P, Awaitable[Page[Item, Any]]]


class Retry(Struct, frozen=True):
    """Send the request again after this pause."""

    seconds: float


class _Detail(Struct, frozen=True):
    code: str
    message: str


class _Envelope(Struct, frozen=True):
    error: _Detail


class Call(Generic[T]):
    def __init__(self, request: Request[T], policy: Policy) -> None:
        self.request = request
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
            return self._retry(response, AttemptResult(sent=response.sent))
        if 200 <= response.status < 300:
            try:
                return self._result(response)
            except msgspec.ValidationError as error:
                message = f"This version of the client cannot read the response: {error}."
                raise UnexpectedAnswer(message, status=response.status) from None
            except (msgspec.DecodeError, UnicodeDecodeError):
                return self._retry(
                    ConnectionFailed("The response is incomplete: it is not valid JSON."), AttemptResult()
                )
        if response.status == 404 and self.request.method == "DELETE" and self._is_effect_unknown:
            return None  # type: ignore[return-value]
        return self._retry(
            error_from(response), AttemptResult(status=response.status, retry_after=response.retry_after)
        )

    def _retry(self, error: QuarterdeckError, outcome: AttemptResult) -> Retry:
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
        operation = self.request.operation
        if operation.result is NoneType:
            return None  # type: ignore[return-value]
        result = msgspec.json.decode(response.body, type=operation.result)
        secret = operation.shown_once
        if secret is not None and "idempotency-replayed" in response.headers and getattr(result, secret) is UNSET:
            raise SecretLost(operation.name, result)
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
