"""The connections of the job queue: a pool for its queries, and one connection that listens for notifications.

The second is always to PostgreSQL itself: a pooler in transaction mode does not deliver notifications.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from procrastinate import PsycopgConnector
from procrastinate.connector import Notify
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.migrate import JOBS_SCHEMA
from quarterdeck.db.pool import (
    RECONNECT_SECONDS,
    SCHEMA,
    Connection,
    LivingPool,
    as_begin,
    connection_kwargs,
    role_settings,
    transaction_with_settings,
)


async def check_queue(database: DatabaseSettings) -> None:
    """Raises an error if the database cannot be reached. Procrastinate would try to open its pool for half a minute,
    with growing pauses."""
    assert database.url is not None, "the caller sets the database URL"
    await (await AsyncConnection.connect(database.url, **_kwargs(database))).close()


def make_connector(database: DatabaseSettings, connections: int) -> PsycopgConnector:
    assert database.url is not None, "the caller sets the database URL"
    arguments: dict[str, Any] = {
        "conninfo": database.url,
        "min_size": connections,
        "max_size": connections,
        # All connect at once: a host that is away takes seconds each time.
        "num_workers": connections,
        # By default the pool waits for half a minute before it reports that the database is unreachable.
        "timeout": database.pool_wait_seconds,
        "reconnect_timeout": RECONNECT_SECONDS,
    }
    if not database.has_pooler:
        return PsycopgConnector(kwargs=_kwargs(database), pool_factory=_queue_pool, **arguments)
    return _PoolerConnector(database, kwargs={"autocommit": True, **_kwargs(database)}, **arguments)


def _queue_pool(**options: Any) -> LivingPool[Connection]:
    """As the library makes it, but a query takes one round trip instead of four: each is a single statement, and the
    check of a connection needs none."""

    async def configure(connection: Connection) -> None:
        await connection.set_autocommit(True)

    return LivingPool(**options | {"check": None, "configure": configure})


def queue_settings(database: DatabaseSettings) -> dict[str, str]:
    return role_settings(database.role, f"{JOBS_SCHEMA},{SCHEMA}")


def _kwargs(database: DatabaseSettings) -> dict[str, Any]:
    return connection_kwargs(queue_settings(database), has_pooler=database.has_pooler)


class _PoolerConnector(PsycopgConnector):
    def __init__(self, database: DatabaseSettings, **arguments: Any) -> None:
        begin = as_begin(queue_settings(database))
        super().__init__(pool_factory=partial(_TransactionPool, begin=begin), **arguments)
        # It opens a connection of its own to listen. Its pool stays empty.
        self._listener = PsycopgConnector(
            conninfo=database.direct_url,
            kwargs=connection_kwargs(queue_settings(database), has_pooler=False),
            min_size=0,
            max_size=1,
        )

    async def open_async(self, pool: AsyncConnectionPool[Any] | None = None) -> None:
        await super().open_async(pool)
        await self._listener.open_async()

    async def close_async(self) -> None:
        await self._listener.close_async()
        await super().close_async()

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        await self._listener.listen_notify(on_notification, channels)


class _TransactionPool(LivingPool[Connection]):
    """Each use of a connection is a transaction with the settings of `begin`."""

    def __init__(self, *, begin: str, **arguments: Any) -> None:
        super().__init__(**arguments | {"check": None})
        self._begin = begin

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[Connection]:  # noqa: ASYNC109 - of psycopg_pool
        async with super().connection(timeout) as connection, transaction_with_settings(connection, self._begin):
            yield connection
