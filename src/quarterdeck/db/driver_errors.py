"""The one place that reads driver errors."""

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError

# PostgreSQL's lock_timeout has passed. The statement was rolled back and can be repeated without its connection.
LOCKED = pg.LockNotAvailable

# The statement was rolled back because of concurrent transactions. Repeating it may succeed.
CONTENTION = (LOCKED, pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)

# PostgreSQL's statement_timeout has passed.
TIMED_OUT = pg.QueryCanceled

# The pool had no connection to lend. Nothing was sent.
NO_CONNECTION = (PoolTimeout, PoolClosed, TooManyRequests)

# SQLSTATE classes of passing faults: connection, transaction rollback, resources, operator intervention.
# Compared by prefix: psycopg's exceptions of one class have no common base.
_PASSING_CLASSES = ("08", "40", "53", "57")
_PASSING = (*NO_CONNECTION, pg.LockNotAvailable, pg.ReadOnlySqlTransaction)
_CONNECTION_CLASS = "08"
# After an error of this severity the server closes the connection.
_FATAL = ("FATAL", "PANIC")


def connection_lost(fault: psycopg.Error) -> bool:
    """True if the server may or may not have finished the last command."""
    if isinstance(fault, NO_CONNECTION):
        return False
    if fault.sqlstate is not None:
        # PgBouncer reports a connection to PostgreSQL that was lost without this severity, but with a class of its own.
        return fault.diag.severity_nonlocalized in _FATAL or fault.sqlstate.startswith(_CONNECTION_CLASS)
    return isinstance(fault, (psycopg.OperationalError, psycopg.InterfaceError))


def translate(fault: psycopg.Error) -> ServiceError:
    # A full disk stays full: the caller is not told to come back soon.
    if isinstance(fault, pg.DiskFull):
        return errors.internal()
    if isinstance(fault, _PASSING) or (fault.sqlstate or "").startswith(_PASSING_CLASSES) or connection_lost(fault):
        return errors.unavailable()
    return errors.internal()
