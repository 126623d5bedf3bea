"""The one place that reads driver errors."""

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from quarterdeck import errors
from quarterdeck.errors import ServiceError

# The statement was rolled back because of what others did at the same moment: the same again may succeed.
CONTENTION = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)

_AWAY = (
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
    pg.QueryCanceled,
    pg.LockNotAvailable,
    pg.InsufficientResources,
    pg.ReadOnlySqlTransaction,
    pg.OperatorIntervention,
    pg.IdleInTransactionSessionTimeout,
)


def connection_lost(fault: BaseException) -> bool:
    """True when the server may or may not have finished the last command."""
    if isinstance(fault, (PoolTimeout, PoolClosed, TooManyRequests)):
        return False
    if isinstance(fault, (pg.AdminShutdown, pg.CrashShutdown, pg.IdleInTransactionSessionTimeout)):
        return True
    return isinstance(fault, (psycopg.OperationalError, psycopg.InterfaceError)) and fault.sqlstate is None


def translate(fault: psycopg.Error) -> ServiceError:
    # A full disk stays full: the caller is not told to come back soon.
    if isinstance(fault, pg.DiskFull):
        return errors.internal()
    if isinstance(fault, _AWAY) or connection_lost(fault):
        return errors.unavailable()
    return errors.internal()
