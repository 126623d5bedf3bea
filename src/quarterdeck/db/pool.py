"""The connections of one process: psycopg's pool, plus a check that a connection is alive before it is lent."""

import select
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

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


class Pool:
    def __init__(self, url: str, size: int, options: str, wait_seconds: float) -> None:
        """`wait_seconds`: how long a caller waits for a free connection."""
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
    async def lease(self) -> AsyncIterator[Connection]:
        """A connection that was alive a moment ago.

        psycopg_pool's own `check` pauses for one second and then two from the second dead connection on, so that the
        first callers after a restart of PostgreSQL would time out."""
        deadline = time.monotonic() + self._pool.timeout
        connection = await self._pool.getconn()
        while _is_dead(connection):
            await connection.close()
            await self._pool.putconn(connection)
            connection = await self._pool.getconn(deadline - time.monotonic())
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)


def _is_dead(connection: Connection) -> bool:
    """An idle connection has nothing to read: a readable socket means that the server has closed it. Found before
    anything is sent, a restart of PostgreSQL leaves no caller with an unknown outcome, and costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
