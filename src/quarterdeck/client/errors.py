"""The exceptions of the client, with one type per error code of the API. All are a QuarterdeckError. Their text is one
line for people and never contains a secret."""

from typing import Any
from uuid import UUID

from quarterdeck.core.errors import ErrorCode


class QuarterdeckError(Exception):
    @property
    def message(self) -> str:
        return str(self)


class InvalidArgument(QuarterdeckError, ValueError):
    """An argument is invalid. No request was sent."""


class InvalidBundle(QuarterdeckError):
    """A folder or file cannot be pushed as a skill. No request was sent."""


class ConnectionFailed(QuarterdeckError):
    """No complete response arrived. `sent` says whether the request may have reached the server."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class UnexpectedAnswer(QuarterdeckError):
    """The response cannot be read by this version of the client, or comes from another server."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class SecretLost(QuarterdeckError):
    """The operation took effect, but the response with the secret was lost, and a secret is shown only once."""

    def __init__(self, operation: str, record: Any) -> None:
        self.id: UUID = record.id
        # The record without the secret.
        self.record = record
        super().__init__(
            f"{operation} took effect, but the response with the secret of {self.id} was lost. A secret is shown only "
            "once. Revoke this id and create another."
        )


class ApiError(QuarterdeckError):
    """The server refused the request. Check the type or `code`; `request_id` finds the request in the server's log."""

    def __init__(
        self, message: str, *, code: str, status: int, request_id: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.request_id = request_id
        # In seconds, if the server sent Retry-After.
        self.retry_after = retry_after


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class InvalidRequest(ApiError):
    pass


class Conflict(ApiError):
    pass


class ClientOutdated(ApiError):
    pass


class PreconditionFailed(ApiError):
    pass


class TooManyRequests(ApiError):
    pass


class Internal(ApiError):
    pass


BY_CODE: dict[str, type[ApiError]] = {
    ErrorCode.UNAUTHORIZED: Unauthorized,
    ErrorCode.FORBIDDEN: Forbidden,
    ErrorCode.NOT_FOUND: NotFound,
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.CONFLICT: Conflict,
    ErrorCode.CLIENT_OUTDATED: ClientOutdated,
    ErrorCode.PRECONDITION_FAILED: PreconditionFailed,
    ErrorCode.TOO_MANY_REQUESTS: TooManyRequests,
    ErrorCode.INTERNAL: Internal,
}
