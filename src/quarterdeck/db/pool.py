"""The connections of one process: psycopg's pool, plus a check that a connection is alive before it is lent, and a
limit on the connections that one owner holds."""

import select
import time
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from quarterdeck.core import metrics
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.core.slots import Slots

# The settings of every connection: its role, its search path, its timeouts.
#
# A connection to PostgreSQL gets them once, by the startup parameter `options`. Behind a pooler in transaction mode,
# such as PgBouncer, each transaction may run in another session, and the pooler refuses `options`: there, the statement
# that begins a transaction sets them for that transaction.

SCHEMA = "app"

# Of all connections. Several times faster than the standard library, and a page has a JSON value in each row.
set_json_loads(msgspec.json.decode)

# Applied when a transaction begins, so they are part of BEGIN instead. The last one is the pooler's decision.
_NOT_FOR_A_TRANSACTION = (
    "default_transaction_read_only",
    "default_transaction_isolation",
    "default_transaction_deferrable",
    "idle_session_timeout",
)
_BEGIN = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE; SELECT {}")
_SET = sql.SQL("pg_catalog.set_config({}, {}, true)")


def app_settings(settings: DatabaseSettings, lock_seconds: float | None = None) -> dict[str, str]:
    """`lock_seconds`: how long a statement waits for a lock, if not `lock_wait_seconds`."""
    if lock_seconds is None:
        lock_seconds = settings.lock_wait_seconds
    return role_settings(settings.role, SCHEMA) | {
        # 0 would mean for ever.
        "lock_timeout": f"{max(1, lock_seconds * 1000):.0f}",
        "statement_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{settings.statement_seconds * 1000:.0f}",
        "TimeZone": "UTC",
    }


def role_settings(role: str, search_path: str) -> dict[str, str]:
    return {
        # Applies from the first statement on, whichever user logs in.
        "role": role,
        "search_path": search_path,
        # PostgreSQL lets every role change its own defaults for later connections. These settings override those that
        # would break what we rely on: durable commits, fresh reads after a lock, open connections, values as psycopg
        # reads them.
        "synchronous_commit": "on",
        "default_transaction_read_only": "off",
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "idle_session_timeout": "0",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "array_nulls": "on",
        "standard_conforming_strings": "on",
    }


def as_options(values: Mapping[str, str]) -> str:
    """For the startup parameter `options`, where a backslash escapes a space."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in values.items())


def as_begin(values: Mapping[str, str]) -> str:
    """Begins a transaction that has these settings, in one round trip."""
    calls = [_SET.format(name, value) for name, value in values.items() if name not in _NOT_FOR_A_TRANSACTION]
    return _BEGIN.format(sql.SQL(", ").join(calls)).as_string()


Connection = AsyncConnection[TupleRow]


class PooledConnection(Connection):
    # Filled by the work of `Database`, which hands the ids over after the commit. None: there is nobody to take them.
    announced: set[UUID] | None = None


C = TypeVar("C", bound=Connection)

# A database host that disappears is noticed within seconds; the kernel's defaults take a quarter of an hour. Not much
# longer than a caller waits: workers give up one connection after another before they connect to another host.
KEEPALIVE = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 6_000,
}
# Short, so that the pool gives up on a database that is away and tries again with the next caller. Otherwise its
# pauses between attempts grow while the database may be back.
RECONNECT_SECONDS = 1.0


class ShareTaken(PoolTimeout):
    """The owner holds its share of the connections."""


class LivingPool(AsyncConnectionPool[C]):
    """Lends only connections that the server has not closed. psycopg_pool's own `check` pauses for one second and then
    two from the second dead connection on, so that the first callers after a restart of PostgreSQL would time out."""

    async def getconn(self, timeout: float | None = None) -> C:  # noqa: ASYNC109 - of psycopg_pool
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            connection = await super().getconn(deadline - time.monotonic())
            if not _is_dead(connection):
                return connection
            # Otherwise the pool would keep it.
            await connection.close()
            await self.putconn(connection)


class Pool:
    def __init__(
        self,
        url: str,
        size: int,
        values: Mapping[str, str],
        wait_seconds: float,
        owner_share: float = 1.0,
        *,
        has_pooler: bool = False,
        name: str = "main",
    ) -> None:
        """`values`: the settings of its connections. `wait_seconds`: how long a caller waits for a free connection.
        `owner_share`: the part of the connections that one owner can hold. `has_pooler`: the URL is that of a pooler in
        transaction mode. `name`: in metrics."""
        self._name = name
        self._slots = Slots(size, max(1, int(size * owner_share)))
        self._begin = as_begin(values) if has_pooler else None
        self._pool = LivingPool(
            url,
            connection_class=PooledConnection,
            kwargs={"autocommit": True, "client_encoding": "UTF8", **connection_kwargs(values, has_pooler=has_pooler)},
            min_size=size,
            max_size=size,
            timeout=wait_seconds,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
        )

    async def open(self) -> None:
        # Without waiting: a process that starts before its database answers 503 until the database is there.
        await self._pool.open(wait=False)

    async def close(self, seconds: float) -> None:
        await self._pool.close(timeout=seconds)

    @asynccontextmanager
    async def lease(
        self, owner: Hashable | None = None, wait_seconds: float | None = None, *, in_transaction: bool = False
    ) -> AsyncIterator[PooledConnection]:
        """A connection that was alive a moment ago. Raises PoolTimeout if there is none in time. Work without an owner
        is not held to a share. Nobody takes a second connection while holding one: that could deadlock.

        `in_transaction`: the block is a transaction, which is committed at its end. Behind a pooler every block is."""
        began = time.monotonic()
        deadline = began + (self._pool.timeout if wait_seconds is None else wait_seconds)
        async with AsyncExitStack() as stack:
            try:
                if owner is not None:
                    await self._take_slot(stack, owner, deadline)
                connection = await self._pool.getconn(deadline - time.monotonic())
            except PoolTimeout:
                metrics.no_connection(self._name)
                raise
            metrics.connection_lent(self._name, time.monotonic() - began)
            try:
                if self._begin is not None:
                    async with transaction_with_settings(connection, self._begin):
                        yield connection
                elif in_transaction:
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection
            finally:
                await self._pool.putconn(connection)

    async def _take_slot(self, stack: AsyncExitStack, owner: Hashable, deadline: float) -> None:
        try:
            await stack.enter_async_context(self._slots.hold(owner, deadline - time.monotonic()))
        except TimeoutError:
            raise ShareTaken from None


def connection_kwargs(values: Mapping[str, str], *, has_pooler: bool) -> dict[str, Any]:
    """Arguments of `connect` beside the URL. The settings are part of them only without a pooler. A pooler may send the
    next execution of a prepared statement to another session, which does not know it."""
    if has_pooler:
        return {"prepare_threshold": None, **KEEPALIVE}
    return {"options": as_options(values), **KEEPALIVE}


@asynccontextmanager
async def transaction_with_settings(connection: Connection, begin: str) -> AsyncIterator[None]:
    """`begin` is made by `as_begin`."""
    await connection.execute(begin.encode())
    try:
        yield
    except BaseException:
        # The error that ended the work says more than that of a connection which is lost.
        with suppress(psycopg.Error):
            await connection.rollback()
        raise
    await connection.commit()


def _is_dead(connection: Connection) -> bool:
    """An idle connection has nothing to read: a readable socket means that the server has closed it. Found before
    anything is sent, a restart of PostgreSQL leaves no caller with an unknown outcome, and costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
