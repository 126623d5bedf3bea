"""One call, however many requests it takes: reads each answer and decides. No input or output here."""

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
from quarterdeck.client.retrying import Outcome, Policy, may_repeat, retry_after_seconds, wait_seconds
from quarterdeck.core.errors import ErrorCode

T = TypeVar("T")

# For answers without the envelope, which something between us and the server gave.
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


class Answer(Struct, frozen=True):
    status: int
    # Names in lower case.
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        return retry_after_seconds(self.headers.get("retry-after"), self.headers.get("date"))


class Again(Struct, frozen=True):
    """Not the end: send the request once more, after this long."""

    seconds: float


class _Detail(Struct, frozen=True):
    code: str
    message: str


class _Envelope(Struct, frozen=True):
    error: _Detail


class Call(Generic[T]):
    def __init__(self, request: Request, kind: type[T], policy: Policy) -> None:
        self.request = request
        self._kind = kind
        self._policy = policy
        self._began = time.monotonic()
        self._tried = 0
        # Whether a try without a clear answer may have taken effect.
        self._in_doubt = False

    def settle(self, answer: Answer | ConnectionFailed) -> T | Again:
        """What the call returns, or that it is to be sent again; raises what it ends in."""
        self._tried += 1
        if isinstance(answer, ConnectionFailed):
            return self._again(answer, Outcome(sent=answer.sent))
        if 200 <= answer.status < 300:
            try:
                return self._value(answer)
            except (msgspec.DecodeError, UnicodeDecodeError) as fault:
                if isinstance(fault, msgspec.ValidationError):
                    message = f"The answer does not fit this version of the client: {fault}."
                    raise UnexpectedAnswer(message, status=answer.status) from None
                return self._again(ConnectionFailed("The answer was broken on the way: it is not JSON."), Outcome())
        if answer.status == 404 and self.request.method == "DELETE" and self._in_doubt:
            return None  # type: ignore[return-value]
        return self._again(error_of(answer), Outcome(status=answer.status, retry_after=answer.retry_after))

    def _again(self, error: QuarterdeckError, outcome: Outcome) -> Again:
        self._in_doubt |= outcome.sent if outcome.status is None else outcome.status >= 500
        if may_repeat(self.request.method, self.request.is_keyed, outcome):
            seconds = wait_seconds(
                self._policy,
                tried=self._tried,
                elapsed=time.monotonic() - self._began,
                retry_after=outcome.retry_after,
                chance=random.random(),  # noqa: S311  spreads tries, guards nothing
            )
            if seconds is not None:
                return Again(seconds)
        raise error

    def _value(self, answer: Answer) -> T:
        if self._kind is type(None):
            return None
        value = msgspec.json.decode(answer.body, type=self._kind)
        secret = self.request.operation.shown_once
        if secret is not None and "idempotency-replayed" in answer.headers and getattr(value, secret) is UNSET:
            raise SecretLost(self.request.operation.name, value)
        return value


def error_of(answer: Answer) -> ApiError | UnexpectedAnswer:
    try:
        detail = msgspec.json.decode(answer.body, type=_Envelope).error
        code, message = detail.code, detail.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        known = ErrorCode.INTERNAL if answer.status >= 500 else _CODES.get(answer.status)
        if known is None:
            where = answer.headers.get("location")
            place = f" and points to {where}: is that the base_url?" if where else ": is there a Quarterdeck server?"
            return UnexpectedAnswer(f"The answer has the status {answer.status}{place}", status=answer.status)
        code, message = known, f"The answer has the status {answer.status} and does not say why."
    return BY_CODE.get(code, ApiError)(
        message,
        code=str(code),
        status=answer.status,
        request_id=answer.headers.get("x-request-id"),
        retry_after=answer.retry_after,
    )
