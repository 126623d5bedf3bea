"""Exit codes of `qd`, described in docs/use/cli.md, and the message and exit code of each error."""

import os
import re
import sys
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarterdeck.client import QuarterdeckError

# The variable with the API key, which `connection.py` reads.
KEY = "QD_KEY"

_ERRNO = re.compile(r"\[Errno -?\d+\] ")


class ExitCode(IntEnum):
    UNSUCCESSFUL = 1
    INVALID_INPUT = 2
    NOT_ALLOWED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    SERVER_UNAVAILABLE = 6
    INCOMPATIBLE = 7
    INTERRUPTED = 130


class CliError(Exception):
    """An error that a command reports itself."""

    def __init__(self, message: str, code: ExitCode = ExitCode.INVALID_INPUT) -> None:
        super().__init__(message)
        self.code = code


def message_and_code(error: Exception) -> tuple[str, ExitCode] | None:
    """None for an unexpected error, which is a bug and keeps its traceback."""
    from quarterdeck.client import QuarterdeckError
    from quarterdeck.core.errors import ServiceError
    from quarterdeck.core.settings import SettingsError

    if isinstance(error, QuarterdeckError):
        return _client_message(error), _client_code(error)
    if isinstance(error, CliError):
        return str(error), error.code
    if isinstance(error, (ServiceError, SettingsError)):
        return str(error), ExitCode.INVALID_INPUT
    if isinstance(error, OSError) and error.strerror:
        # The machine's error, such as a full disk or missing permissions.
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, ExitCode.INVALID_INPUT
    # Without psycopg no database was used, and it may not be installed.
    message = _database_message(error) if sys.modules.get("psycopg") else None
    return None if message is None else (message, ExitCode.INVALID_INPUT)


def _client_code(error: "QuarterdeckError") -> ExitCode:
    from quarterdeck.client import errors

    codes: dict[type[QuarterdeckError], ExitCode] = {
        errors.InvalidArgument: ExitCode.INVALID_INPUT,
        errors.InvalidBundle: ExitCode.INVALID_INPUT,
        errors.InvalidRequest: ExitCode.INVALID_INPUT,
        errors.Unauthorized: ExitCode.NOT_ALLOWED,
        errors.Forbidden: ExitCode.NOT_ALLOWED,
        errors.NotFound: ExitCode.NOT_FOUND,
        errors.Conflict: ExitCode.CONFLICT,
        errors.PreconditionFailed: ExitCode.CONFLICT,
        errors.ConnectionFailed: ExitCode.SERVER_UNAVAILABLE,
        errors.TooManyRequests: ExitCode.SERVER_UNAVAILABLE,
        errors.Internal: ExitCode.SERVER_UNAVAILABLE,
        errors.SecretLost: ExitCode.UNSUCCESSFUL,
    }
    return codes.get(type(error), ExitCode.INCOMPATIBLE)


def _client_message(error: "QuarterdeckError") -> str:
    from quarterdeck.client import ConnectionFailed, Internal, Unauthorized

    if isinstance(error, Unauthorized):
        hint = f" {KEY} overrides the saved login." if os.environ.get(KEY) else ""
        return (
            "Invalid, expired or revoked login or key, or its person is no longer a member. "
            f"Run `qd login` to use another.{hint}"
        )
    if isinstance(error, ConnectionFailed):
        return f"{_ERRNO.sub('', error.message).removesuffix('.')}. Check the address, and that the server is running."
    if isinstance(error, Internal) and error.request_id is not None:
        return f"{error.message} (request {error.request_id})"
    return error.message


def _database_message(error: Exception) -> str | None:
    from psycopg import Error as DatabaseError
    from psycopg import ProgrammingError

    from quarterdeck.db.migrate import MigrationError
    from quarterdeck.db.roles import RoleError
    from quarterdeck.server.embedded_postgres import EmbeddedError

    if isinstance(error, (EmbeddedError, MigrationError, RoleError)):
        return str(error)
    if not isinstance(error, DatabaseError):
        return None
    if isinstance(error, ProgrammingError) and error.sqlstate is None:
        # The error's own text quotes the URL with its password.
        return "QUARTERDECK_DATABASE_URL (or _DIRECT_URL or _OWNER_URL) is not a PostgreSQL URL"
    return f"Database error: {error}"
