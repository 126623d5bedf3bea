"""The message and exit code of each error. Imported only after an error, because its imports are slow."""

import os
import re
import sys

from quarterdeck.cli.connection import KEY
from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.client import errors as client
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import SettingsError

_CODES: dict[type[client.QuarterdeckError], ExitCode] = {
    client.InvalidArgument: ExitCode.INVALID_INPUT,
    client.InvalidBundle: ExitCode.INVALID_INPUT,
    client.InvalidRequest: ExitCode.INVALID_INPUT,
    client.Unauthorized: ExitCode.NOT_ALLOWED,
    client.Forbidden: ExitCode.NOT_ALLOWED,
    client.NotFound: ExitCode.NOT_FOUND,
    client.Conflict: ExitCode.CONFLICT,
    client.PreconditionFailed: ExitCode.CONFLICT,
    client.ConnectionFailed: ExitCode.SERVER_UNAVAILABLE,
    client.TooManyRequests: ExitCode.SERVER_UNAVAILABLE,
    client.Internal: ExitCode.SERVER_UNAVAILABLE,
    client.ClientOutdated: ExitCode.INCOMPATIBLE,
    client.UnexpectedAnswer: ExitCode.INCOMPATIBLE,
    client.SecretLost: ExitCode.UNSUCCESSFUL,
}

_ERRNO = re.compile(r"\[Errno -?\d+\] ")


def message_and_code(error: Exception) -> tuple[str, ExitCode] | None:
    """None for an unexpected error, which is a bug and keeps its traceback."""
    if isinstance(error, client.QuarterdeckError):
        return _client_message(error), _CODES.get(type(error), ExitCode.INCOMPATIBLE)
    if isinstance(error, CliError):
        return str(error), error.code
    if isinstance(error, ServiceError):
        return error.message, ExitCode.INVALID_INPUT
    if isinstance(error, SettingsError):
        return str(error), ExitCode.INVALID_INPUT
    if isinstance(error, OSError) and error.strerror:
        # The machine's error, such as a full disk or missing permissions.
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, ExitCode.INVALID_INPUT
    # Without psycopg no database was used, and it may not be installed.
    return _database_message(error) if sys.modules.get("psycopg") else None


def _client_message(error: client.QuarterdeckError) -> str:
    if isinstance(error, client.Unauthorized):
        hint = f" {KEY} overrides the saved login." if os.environ.get(KEY) else ""
        return f"Invalid, expired or revoked key. Run `qd login` to use another.{hint}"
    if isinstance(error, client.ConnectionFailed):
        return f"{_ERRNO.sub('', error.message).removesuffix('.')}. Check the address, and that the server is running."
    if isinstance(error, client.Internal) and error.request_id is not None:
        return f"{error.message} (request {error.request_id})"
    return error.message


def _database_message(error: Exception) -> tuple[str, ExitCode] | None:
    from psycopg import Error as DatabaseError
    from psycopg import ProgrammingError

    from quarterdeck.db.migrate import MigrationError
    from quarterdeck.db.roles import RoleError
    from quarterdeck.server.embedded_postgres import EmbeddedError

    if isinstance(error, (EmbeddedError, MigrationError, RoleError)):
        return str(error), ExitCode.INVALID_INPUT
    if not isinstance(error, DatabaseError):
        return None
    if isinstance(error, ProgrammingError) and error.sqlstate is None:
        # The error's own text quotes the URL with its password.
        return "QUARTERDECK_DATABASE_URL (or _DIRECT_URL or _OWNER_URL) is not a PostgreSQL URL", ExitCode.INVALID_INPUT
    return f"Database error: {error}", ExitCode.INVALID_INPUT
