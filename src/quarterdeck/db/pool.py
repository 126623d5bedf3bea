"""The connections of one process, lent out one at a time.

The connection that came back last goes out first. Taken in turns, as the library does it, each would meet a PostgreSQL
process that has just lost its place in the processor's caches, and a lone statement would take a fifth longer.
"""

import select
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

Connection = AsyncConnection[TupleRow]

# A database host that vanishes without a word is noticed within seconds, not by the kernel's quarter of an hour.
WATCHFUL = {
    "connect_timeout": 3,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Short: a pool gives up on a database that is away and tries again with the next caller, instead of sleeping ever
# longer while it may be back.
RECONNECT_SECONDS = 1.0
_RETURNS_BETWEEN_LOOKS = 1000


class Pool:
    def __init__(self, url: str, size: int, options: str, wait_seconds: float) -> None:
        """`wait_seconds` is how long somebody waits for a connection."""
        self._pool = AsyncConnectionPool(
            url,
            connection_class=AsyncConnection[TupleRow],
            kwargs={"autocommit": True, "options": options, "client_encoding": "UTF8", **WATCHFUL},
            min_size=size,
            max_size=size,
            timeout=wait_seconds,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
        )
        self._last: Connection | None = None
        # Who waits for the library to give one out.
        self._asking = 0
        self._returns = 0

    async def open(self) -> None:
        # Without waiting: a process that starts before its database answers 503 until it is there.
        await self._pool.open(wait=False)

    async def close(self, seconds: float) -> None:
        last, self._last = self._last, None
        if last is not None:
            await self._pool.putconn(last)
        await self._pool.close(timeout=seconds)

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Connection]:
        """A connection that was alive a moment ago."""
        connection = await self.take()
        try:
            yield connection
        finally:
            await self.put_back(connection)

    async def take(self) -> Connection:
        """For who puts it back in any case. `lease` says so more plainly, and costs a call more.

        The library's own `check` is not used: from the second dead connection on it pauses, a second and then two,
        so that the first callers after a restart of PostgreSQL ran out of time."""
        deadline = time.monotonic() + self._pool.timeout
        connection, self._last = self._last, None
        while connection is None or _is_dead(connection):
            if connection is not None:
                await connection.close()
                await self._pool.putconn(connection)
            self._asking += 1
            try:
                connection = await self._pool.getconn(deadline - time.monotonic())
            finally:
                self._asking -= 1
        return connection

    async def put_back(self, connection: Connection) -> None:
        self._returns += 1
        is_fit = connection.pgconn.transaction_status == TransactionStatus.IDLE
        # The library ends connections that have become old, if it gets to see them.
        is_due = self._returns % _RETURNS_BETWEEN_LOOKS == 0
        if is_fit and not is_due and self._last is None and not self._asking and not self._pool.closed:
            self._last = connection
        else:
            await self._pool.putconn(connection)


def _is_dead(connection: Connection) -> bool:
    """An idle connection has nothing to say: if its socket is readable the server has closed it. Found before
    anything is sent, a restart of PostgreSQL costs no caller an unknown outcome, and no round trip is paid."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
