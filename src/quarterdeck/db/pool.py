"""The connections of one process: psycopg's pool, plus a check that a connection is alive before it is lent, and a
limit on the connections that one owner holds."""

import select
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager

from psycopg import AsyncConnection, OperationalError
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from quarterdeck.core.places import Places

Connection = AsyncConnection[TupleRow]

# A database host that disappears is noticed within seconds; the kernel's defaults take a quarter of an hour.
KEEPALIVE = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Short, so that the pool gives up on a database that is away and tries again with the next caller. Otherwise its
# pauses between attempts grow while the database may be back.
RECONNECT_SECONDS = 1.0


class ShareTaken(PoolTimeout):
    """The owner holds its share of the connections."""


class Pool:
    def __init__(self, url: str, size: int, options: str, wait_seconds: float, owner_share: float = 1.0) -> None:
        """`wait_seconds`: how long a caller waits for a free connection. `owner_share`: the part of the connections
        that one owner can hold."""
        self._places = Places(size, max(1, int(size * owner_share)))
        self._pool = AsyncConnectionPool(
            url,
            connection_class=AsyncConnection[TupleRow],
            kwargs={"autocommit": True, "options": options, "client_encoding": "UTF8", **KEEPALIVE},
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
        self, owner: Hashable | None = None, wait_seconds: float | None = None
    ) -> AsyncIterator[Connection]:
        """A connection that was alive a moment ago. Raises PoolTimeout if there is none in time. Work without an owner
        is not held to a share. Nobody takes a second connection while holding one: that could deadlock."""
        deadline = time.monotonic() + (self._pool.timeout if wait_seconds is None else wait_seconds)
        async with AsyncExitStack() as stack:
            if owner is not None:
                try:
                    await stack.enter_async_context(self._places.hold(owner, deadline - time.monotonic()))
                except TimeoutError:
                    raise ShareTaken from None
            connection = await self._living_connection(deadline)
            try:
                yield connection
            finally:
                await self._pool.putconn(connection)

    async def _living_connection(self, deadline: float) -> Connection:
        """psycopg_pool's own `check` pauses for one second and then two from the second dead connection on, so that the
        first callers after a restart of PostgreSQL would time out."""
        while True:
            connection = await self._pool.getconn(deadline - time.monotonic())
            if not _is_dead(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)


def _is_dead(connection: Connection) -> bool:
    """An idle connection has nothing to read: a readable socket means that the server has closed it. Found before
    anything is sent, a restart of PostgreSQL leaves no caller with an unknown outcome, and costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def check_alive(connection: Connection) -> None:
    """For pools of the library: raises an error if the connection is dead."""
    if _is_dead(connection):
        raise OperationalError("the server has closed the connection")
