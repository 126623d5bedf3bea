"""The one place that reads driver errors."""

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError

# The statement was rolled back because of what others did at the same moment: the same again may succeed.
CONTENTION = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)

# Classes of SQLSTATE that say come back later: connections, beaten by others, out of resources, an operator's doing.
# Compared by their letters: psycopg's exceptions of one class do not inherit from each other.
_AWAY_CLASSES = ("08", "40", "53", "57")
_AWAY = (PoolTimeout, PoolClosed, TooManyRequests, pg.LockNotAvailable, pg.ReadOnlySqlTransaction)
# Reported by the server as its last words on this connection.
_LAST_WORDS = ("FATAL", "PANIC")


def connection_lost(fault: psycopg.Error) -> bool:
    """True when the server may or may not have finished the last command."""
    if isinstance(fault, (PoolTimeout, PoolClosed, TooManyRequests)):
        return False
    if fault.sqlstate is not None:
        return fault.diag.severity_nonlocalized in _LAST_WORDS
    return isinstance(fault, (psycopg.OperationalError, psycopg.InterfaceError))


def translate(fault: psycopg.Error) -> ServiceError:
    # A full disk stays full: the caller is not told to come back soon.
    if isinstance(fault, pg.DiskFull):
        return errors.internal()
    if isinstance(fault, _AWAY) or (fault.sqlstate or "").startswith(_AWAY_CLASSES) or connection_lost(fault):
        return errors.unavailable()
    return errors.internal()
