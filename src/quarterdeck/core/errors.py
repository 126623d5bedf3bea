"""Errors that callers see, independent of HTTP: `http/responses.py` maps each kind to a status.

`message` is sent to the caller. It contains no ids, so that an invisible object and a missing object give identical
responses. Details for the operator go to the log through `__cause__`.
"""

from enum import Enum, StrEnum
from typing import TypeVar

T = TypeVar("T")

# A run takes inputs before each step, and a step takes seconds.
_RUN_FULL_WAIT_SECONDS = 5
# Retry-After of a refused event stream.
_STREAM_WAIT_SECONDS = 5


# Conflicts.
KEY_REUSED = "This Idempotency-Key was already used for a different request. Use a new key."
LAST_OWNER = "The workspace must keep an owner. Make another member an owner first."
HAS_ACCOUNT = "This email address has an account. Sign in, then open the invitation again."
EMAIL_TAKEN = "Another account has this email address."
MEMBER_ALREADY = "This person is a member of the workspace already."
INVITATION_ENDED = "This invitation was accepted or withdrawn before."
WRONG_PASSWORD = "The current password is wrong."
ARCHIVED_SESSION = "This session is archived. Unarchive it to send input."
INPUT_DISCARDED = "This input was discarded before."
INPUT_IN_USE = "A run has consumed this input and has not failed. Only inputs that wait or failed can be discarded."
FORK_TOO_LARGE = "The log of this session is too large to be copied. Fork before an earlier event."
SESSION_FILES_FULL = "The attachments exceed the limits for the files of a session. Nothing was stored."
NOT_RETRYABLE = "Only failed and cancelled runs can be retried."
ANOTHER_RUN_ACTIVE = "This session has an active run. Retry when it has ended, or cancel it."
NOTHING_TO_RETRY = "This run has no inputs that could be retried."
TOO_MUCH_TO_RETRY = "This run has more inputs, by number or by size, than may wait in one run. Send them again."
LIMIT_WAS_RAISED = "This action is closed: its limit was raised, or its day is over. The run has continued."
ACTION_EXPIRED = "This action has expired: nobody answered in time."
ACTION_CANCELLED = "This action was closed because its run was cancelled."


class ErrorCode(StrEnum):
    """The closed set of the interface. Clients branch on it."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    INVALID_REQUEST = "invalid_request"
    CONFLICT = "conflict"
    CLIENT_OUTDATED = "client_outdated"
    PRECONDITION_FAILED = "precondition_failed"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


class ErrorKind(Enum):
    """One entry for each combination of error code, HTTP status and headers."""

    UNAUTHORIZED = ErrorCode.UNAUTHORIZED, "credential"
    FORBIDDEN = ErrorCode.FORBIDDEN, "permission"
    NOT_FOUND = ErrorCode.NOT_FOUND, "absent"
    INVALID = ErrorCode.INVALID_REQUEST, "invalid"
    TOO_LARGE = ErrorCode.INVALID_REQUEST, "too large"
    TOO_SLOW = ErrorCode.INVALID_REQUEST, "too slow"
    BROKEN_BODY = ErrorCode.INVALID_REQUEST, "broken body"
    MALFORMED = ErrorCode.INVALID_REQUEST, "malformed"
    UNSATISFIABLE_RANGE = ErrorCode.INVALID_REQUEST, "unsatisfiable range"
    WRONG_METHOD = ErrorCode.INVALID_REQUEST, "wrong method"
    CONFLICT = ErrorCode.CONFLICT, "conflict"
    CONTENDED = ErrorCode.CONFLICT, "contended"
    PRECONDITION = ErrorCode.PRECONDITION_FAILED, "precondition"
    OUTDATED = ErrorCode.CLIENT_OUTDATED, "outdated"
    TOO_MANY = ErrorCode.TOO_MANY_REQUESTS, "too many"
    TOO_MANY_STREAMS = ErrorCode.TOO_MANY_REQUESTS, "too many streams"
    UNAVAILABLE = ErrorCode.INTERNAL, "unavailable"
    INTERNAL = ErrorCode.INTERNAL, "internal"

    @property
    def code(self) -> ErrorCode:
        return self.value[0]


class ServiceError(Exception):
    def __init__(self, kind: ErrorKind, message: str, wait_seconds: int | None = None) -> None:
        """`wait_seconds` overrides the Retry-After of the kind."""
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.wait_seconds = wait_seconds


def unauthorized() -> ServiceError:
    """The same text for missing, malformed, unknown, revoked and expired credentials, to help no attacker."""
    return ServiceError(
        ErrorKind.UNAUTHORIZED, "Missing, invalid, expired or revoked credential. Send Authorization: Bearer <key>."
    )


def wrong_sign_in() -> ServiceError:
    """The same text whether the account exists or not."""
    return ServiceError(ErrorKind.UNAUTHORIZED, "The email address or the password is wrong.")


def wrong_token(reason: str) -> ServiceError:
    """The token of another system."""
    return ServiceError(ErrorKind.FORBIDDEN, reason)


def other_site() -> ServiceError:
    return ServiceError(ErrorKind.FORBIDDEN, "A browser can be signed in only by the console of this server.")


def forbidden(permission: str) -> ServiceError:
    return ServiceError(ErrorKind.FORBIDDEN, f"This credential lacks the permission {permission}.")


def exceeds_caller(reason: str) -> ServiceError:
    return ServiceError(ErrorKind.FORBIDDEN, reason)


def not_found(object_name: str) -> ServiceError:
    return ServiceError(ErrorKind.NOT_FOUND, f"No such {object_name}, or this credential cannot see it.")


def existing(found: T | None, object_name: str) -> T:
    """For a record that may have been deleted since the check of visibility."""
    if found is None:
        raise not_found(object_name)
    return found


def invalid(reason: str) -> ServiceError:
    return ServiceError(ErrorKind.INVALID, reason)


def too_large(limit_bytes: int) -> ServiceError:
    return ServiceError(ErrorKind.TOO_LARGE, f"The request body is too large. The limit is {limit_bytes} bytes.")


def too_slow(reason: str) -> ServiceError:
    return ServiceError(ErrorKind.TOO_SLOW, reason)


def broken_body() -> ServiceError:
    return ServiceError(ErrorKind.BROKEN_BODY, "The request body is incomplete or has invalid framing.")


def malformed(reason: str) -> ServiceError:
    """The request cannot be parsed, so the start of the next request is unknown."""
    return ServiceError(ErrorKind.MALFORMED, reason)


def unknown_coding() -> ServiceError:
    return ServiceError(ErrorKind.MALFORMED, "Unsupported Transfer-Encoding. Use chunked, once.")


def unsatisfiable_range() -> ServiceError:
    return ServiceError(ErrorKind.UNSATISFIABLE_RANGE, "Range starts after the end of the content.")


def conflict(reason: str) -> ServiceError:
    return ServiceError(ErrorKind.CONFLICT, reason)


def answered_differently(who: str) -> ServiceError:
    return conflict(f"This action was answered before, by {who}, and differently. The first answer counts.")


def precondition_failed() -> ServiceError:
    return ServiceError(
        ErrorKind.PRECONDITION,
        "This object has changed since you read it: If-Match does not match its ETag. Read it again.",
    )


def outdated(oldest: str) -> ServiceError:
    return ServiceError(
        ErrorKind.OUTDATED,
        f"This client is too old. The server requires {oldest} or newer: pip install --upgrade quarterdeck.",
    )


def too_many(limit_name: str, wait_seconds: int) -> ServiceError:
    return ServiceError(
        ErrorKind.TOO_MANY, f"Too many requests for this {limit_name}. Try again in {wait_seconds} s.", wait_seconds
    )


def too_many_tries(kind: str, wait_seconds: int) -> ServiceError:
    """`kind`: account or address."""
    message = f"Too many tries for this {kind}. Try again in {wait_seconds} s."
    return ServiceError(ErrorKind.TOO_MANY, message, wait_seconds)


def run_full() -> ServiceError:
    return ServiceError(
        ErrorKind.TOO_MANY,
        "The active run has too many waiting inputs. Nothing was stored. Try again later or cancel the run.",
        _RUN_FULL_WAIT_SECONDS,
    )


def too_many_pending() -> ServiceError:
    return ServiceError(
        ErrorKind.TOO_MANY,
        "This session has as many pending runs as it may have. Nothing was stored: send it again when one of them has "
        "started, or cancel one.",
        _RUN_FULL_WAIT_SECONDS,
    )


def too_many_streams(owner: str, limit: int) -> ServiceError:
    """It is unknown when another stream will end, so the wait is a fixed time."""
    return ServiceError(
        ErrorKind.TOO_MANY_STREAMS,
        f"This {owner} has the maximum of {limit} open event streams. Close one or try again in "
        f"{_STREAM_WAIT_SECONDS} s.",
        _STREAM_WAIT_SECONDS,
    )


def contended() -> ServiceError:
    """A conflict that a retry can resolve."""
    return ServiceError(
        ErrorKind.CONTENDED, "The session's active run changed at the same time. Nothing was stored. Try again."
    )


def locked() -> ServiceError:
    """Another transaction held a lock for too long. A retry can resolve this conflict too."""
    return ServiceError(
        ErrorKind.CONTENDED, "Other requests are changing the same object. Nothing was stored. Try again."
    )


def unavailable(reason: str = "The service is temporarily unavailable. Try again shortly.") -> ServiceError:
    return ServiceError(ErrorKind.UNAVAILABLE, reason)


def search_too_slow() -> ServiceError:
    return unavailable("The search took too long. Use more words, or words that are less common.")


def outcome_unknown() -> ServiceError:
    return unavailable(
        "The connection to the database was lost while storing this request, which may have taken effect. Use an "
        "Idempotency-Key to make retries safe."
    )


def internal() -> ServiceError:
    return ServiceError(ErrorKind.INTERNAL, "Internal error. Report the X-Request-Id of this response to the operator.")
