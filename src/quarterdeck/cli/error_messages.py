"""What each fault of a command is told as: one line for people and an exit code for programs.

Imported when something went wrong: what it must know of takes long to import.
"""

import os
import re
import sys

from quarterdeck.cli.connection import KEY
from quarterdeck.cli.exit_codes import Complaint, Exit
from quarterdeck.client import errors as client
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import SettingsError

_CODES: dict[type[client.QuarterdeckError], Exit] = {
    client.InvalidArgument: Exit.WRONG_INPUT,
    client.InvalidBundle: Exit.WRONG_INPUT,
    client.InvalidRequest: Exit.WRONG_INPUT,
    client.Unauthorized: Exit.NOT_ALLOWED,
    client.Forbidden: Exit.NOT_ALLOWED,
    client.NotFound: Exit.NOT_FOUND,
    client.Conflict: Exit.CONFLICT,
    client.PreconditionFailed: Exit.CONFLICT,
    client.ConnectionFailed: Exit.SERVER_AWAY,
    client.TooManyRequests: Exit.SERVER_AWAY,
    client.Internal: Exit.SERVER_AWAY,
    client.ClientOutdated: Exit.NOT_UNDERSTOOD,
    client.UnexpectedAnswer: Exit.NOT_UNDERSTOOD,
    # Its words tell what is left to do.
    client.SecretLost: Exit.UNSUCCESSFUL,
}


# Of use to nobody beside its own words.
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


def explained(fault: Exception) -> tuple[str, Exit] | None:
    """None: a fault of our own, which is no business of this page."""
    if isinstance(fault, client.QuarterdeckError):
        return _told(fault), _CODES.get(type(fault), Exit.NOT_UNDERSTOOD)
    if isinstance(fault, Complaint):
        return str(fault), fault.code
    if isinstance(fault, ServiceError):
        return fault.message, Exit.WRONG_INPUT
    if isinstance(fault, SettingsError):
        return str(fault), Exit.WRONG_INPUT
    if isinstance(fault, ModuleNotFoundError) and fault.name is not None and not fault.name.startswith("quarterdeck"):
        extra = "redis" if fault.name == "redis" else "server"
        return (
            f"The Python package {fault.name} is not installed. `pip install 'quarterdeck[{extra}]'` installs it.",
            Exit.WRONG_INPUT,
        )
    if isinstance(fault, OSError) and fault.strerror:
        # A full disk, a file that may not be read: of the machine's making, not of ours.
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror, Exit.WRONG_INPUT
    return _of_the_database(fault)


def _told(fault: client.QuarterdeckError) -> str:
    if isinstance(fault, client.Unauthorized):
        first = f" {KEY} is set and goes before a login." if os.environ.get(KEY) else ""
        return f"The server does not take this key: it is wrong, expired or revoked. `qd login` takes another.{first}"
    if isinstance(fault, client.ConnectionFailed):
        return f"{_ERRNO.sub('', fault.message).removesuffix('.')}. Is the server running, and is this its address?"
    if isinstance(fault, client.Internal) and fault.request_id is not None:
        return f"{fault.message} (request {fault.request_id})"
    return fault.message


def _of_the_database(fault: Exception) -> tuple[str, Exit] | None:
    if "psycopg" not in sys.modules:
        # Not a database error, and in a plain install psycopg cannot be imported.
        return None
    from psycopg import Error as DatabaseFault
    from psycopg import ProgrammingError

    from quarterdeck.db.migrate import MigrationError
    from quarterdeck.db.roles import RoleError
    from quarterdeck.server.embedded_postgres import EmbeddedError

    if isinstance(fault, (EmbeddedError, MigrationError, RoleError)):
        return str(fault), Exit.WRONG_INPUT
    if not isinstance(fault, DatabaseFault):
        return None
    if isinstance(fault, ProgrammingError) and fault.sqlstate is None:
        # Its text quotes the URL, password and all.
        return "QUARTERDECK_DATABASE_URL (or _OWNER_URL) is not a PostgreSQL URL", Exit.WRONG_INPUT
    return f"the database refused: {fault}", Exit.WRONG_INPUT
