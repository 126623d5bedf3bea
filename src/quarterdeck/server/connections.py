"""Connections to PostgreSQL: how many the processes of a command open, and whether PostgreSQL allows them."""

import sys
from collections.abc import Iterator

import psycopg
from msgspec import Struct

from quarterdeck.core.settings import Settings, SettingsError, variable
from quarterdeck.db.connection_limits import ConnectionLimits, read_connection_limits

# For commands such as `qd admin`, for a process that starts while the one it replaces ends, and for those that
# PostgreSQL reserves for superusers.
_SPARE = 30
_EMBEDDED_MIN = 100


class Demand(Struct, frozen=True):
    """What a number of processes opens at PostgreSQL itself. A pooler needs only those that listen."""

    api_processes: int
    workers: int
    per_api_process: int
    per_worker: int
    metrics_ports: int = 0

    @property
    def total(self) -> int:
        processes = self.api_processes * self.per_api_process + self.workers * self.per_worker
        return processes + self.metrics_ports

    def __str__(self) -> str:
        parts = [
            f"{count} {name} x {each}"
            for count, name, each in (
                (self.api_processes, "API processes", self.per_api_process),
                (self.workers, "workers", self.per_worker),
                (self.metrics_ports, "metrics port", 1),
            )
            if count
        ]
        return f"{self.total} ({' + '.join(parts)})"


def demand_of(settings: Settings, *, api_processes: int, workers: int) -> Demand:
    database = settings.database
    if database.has_pooler:
        return Demand(api_processes, workers, per_api_process=1, per_worker=1)
    return Demand(
        api_processes,
        workers,
        # One more to listen for notifications, as below.
        per_api_process=database.pool_connections + database.submit_connections + 1,
        per_worker=database.pool_connections + 1,
        metrics_ports=0 if settings.metrics.port is None else 1,
    )


def demand_of_everything(settings: Settings) -> Demand:
    """Of `qd serve`."""
    return demand_of(settings, api_processes=settings.server.processes, workers=settings.worker.processes)


def embedded_max_connections(settings: Settings) -> int:
    return max(_EMBEDDED_MIN, demand_of_everything(settings).total + _SPARE)


def check_connections(url: str, settings: Settings, demand: Demand) -> None:
    """Raises SettingsError if PostgreSQL does not allow so many connections, if the URL is that of a pooler, or if the
    encoding of the database is not UTF-8. A database that is not reachable is not checked: the processes wait for
    it."""
    try:
        found = read_connection_limits(url)
    except psycopg.OperationalError as fault:
        _warn(f"the database cannot be reached yet: {' '.join(str(fault).split())}")
        return
    if found.has_pooler:
        raise SettingsError(_pooler_message(settings))
    if found.encoding_error is not None:
        raise SettingsError(found.encoding_error)
    limits = list(_limits(found))
    strictest = min(limits, key=lambda limit: limit.allowed)
    if demand.total > strictest.allowed:
        raise SettingsError(
            f"too many connections: the processes of this command need {demand}, and PostgreSQL allows "
            f"{strictest.allowed} ({strictest.reason}): {_remedy(settings)} (docs/run/database.md#connections)"
        )
    fullest = min(limits, key=lambda limit: limit.allowed - limit.others)
    if demand.total > fullest.allowed - fullest.others:
        _warn(
            f"the processes of this command need {demand.total} connections, other programs have {fullest.others}, and "
            f"PostgreSQL allows {fullest.allowed} ({fullest.reason})"
        )


class _Limit(Struct, frozen=True):
    reason: str
    allowed: int
    # Connections of other programs that it counts.
    others: int


def _limits(found: ConnectionLimits) -> Iterator[_Limit]:
    reason = f"max_connections {found.max_connections} less {found.reserved} reserved"
    yield _Limit(reason, found.max_connections - found.reserved, found.others)
    if found.of_login >= 0:
        yield _Limit("the limit of the login", found.of_login, found.others_of_login)
    if found.of_database >= 0:
        yield _Limit("the limit of the database", found.of_database, found.others_of_database)


def _pooler_message(settings: Settings) -> str:
    name = variable("database", "direct_url")
    if settings.database.has_pooler:
        return f"{name} is the address of a connection pooler; it must be that of PostgreSQL itself"
    return (
        f"{variable('database', 'url')} is the address of a connection pooler: set {name} to the address of PostgreSQL "
        "itself (docs/run/database.md#pgbouncer)"
    )


def _remedy(settings: Settings) -> str:
    if settings.database.url is None:
        return "another command has started it with fewer; end the commands that use this data folder, and start again"
    return "raise the limit, start fewer processes, or use PgBouncer"


def _warn(text: str) -> None:
    sys.stderr.write(f"qd: warning: {text}\n")
