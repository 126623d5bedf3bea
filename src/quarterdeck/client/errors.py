"""What a call can end in, one type for each code of the API. Every one is a QuarterdeckError whose text is for people:
one line, without a secret."""

from typing import Any
from uuid import UUID

from quarterdeck.core.errors import ErrorCode


class QuarterdeckError(Exception):
    @property
    def message(self) -> str:
        return str(self)


class InvalidArgument(QuarterdeckError, ValueError):
    """Seen here, before anything was sent."""


class InvalidBundle(QuarterdeckError):
    """A folder or file that cannot be pushed as a skill. Nothing was sent."""


class ConnectionFailed(QuarterdeckError):
    """No whole answer came. `sent` says whether the request may have reached the server."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class UnexpectedAnswer(QuarterdeckError):
    """An answer that this version of the client cannot read, or that another server gave."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class SecretLost(QuarterdeckError):
    """It took effect, but the answer with the secret did not arrive, and a secret is shown only once."""

    def __init__(self, operation: str, record: Any) -> None:
        self.id: UUID = record.id
        # All but the secret.
        self.record = record
        super().__init__(
            f"{operation} took effect, but the secret of {self.id} was lost on the way and is never shown again. "
            "Revoke this id and create another."
        )


class ApiError(QuarterdeckError):
    """The server said no. Branch on the type or on `code`; `request_id` finds the request in the server's log."""

    def __init__(
        self, message: str, *, code: str, status: int, request_id: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.request_id = request_id
        # Seconds, where the server named a time.
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
