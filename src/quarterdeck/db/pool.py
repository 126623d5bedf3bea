"""The connections of one process, lent out one at a time.

The connection that came back last goes out first. Taken in turns, as the library does it, each would meet a PostgreSQL
process that has just lost its place in the processor's caches, and a lone statement would take a fifth longer.
"""

import asyncio
import select
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from quarterdeck.patience import within

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
        self._size = size
        # Those that the library has given out and nobody uses, the one that came back last at the end.
        self._idle: list[Connection] = []
        # How many the library has given out, or is being asked for.
        self._held = 0
        self._asking = 0
        # Who waits for one to come back. None: there is none, but the library may be asked.
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._returns = 0

    async def open(self) -> None:
        # Without waiting: a process that starts before its database answers 503 until it is there.
        await self._pool.open(wait=False)

    async def close(self, seconds: float) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._pool.putconn(connection)
        await self._pool.close(timeout=seconds)
        # The library tells them that it is closed.
        while self._wake(None):
            pass

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
        while True:
            connection = self._idle.pop() if self._idle else await self._next(deadline)
            if connection is None:
                continue
            if not _is_dead(connection):
                return connection
            await connection.close()
            await self._give_up(connection)

    async def put_back(self, connection: Connection) -> None:
        self._returns += 1
        is_fit = connection.pgconn.transaction_status == TransactionStatus.IDLE
        # The library ends connections that have become old, if it gets to see them.
        is_due = self._returns % _RETURNS_BETWEEN_LOOKS == 0
        if not is_fit or is_due or self._pool.closed or not self._pass_on(connection):
            await self._give_up(connection)

    async def _next(self, deadline: float) -> Connection | None:
        """From the library, as long as it has one more, or from whoever brings one back first, which is handed over
        without the locks and counts of the library's own queue."""
        if self._held < self._size or self._pool.closed:
            self._held += 1
            self._asking += 1
            try:
                return await self._pool.getconn(deadline - time.monotonic())
            except BaseException:
                self._held -= 1
                self._wake(None)
                raise
            finally:
                self._asking -= 1
        place: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await within(deadline - time.monotonic(), place)
        except BaseException as fault:
            # It may have come in the same moment.
            if place.done() and not place.cancelled() and (connection := place.result()) is not None:
                await self.put_back(connection)
            if isinstance(fault, TimeoutError):
                raise PoolTimeout("no connection came back in time") from None
            raise

    def _pass_on(self, connection: Connection) -> bool:
        """To who waits, or to those at hand. Not while somebody asks the library, which may have no other."""
        if self._asking:
            return False
        if not self._wake(connection):
            self._idle.append(connection)
        return True

    async def _give_up(self, connection: Connection) -> None:
        """Back to the library, which keeps it or makes another in its place."""
        self._held -= 1
        self._wake(None)
        await self._pool.putconn(connection)

    def _wake(self, connection: Connection | None) -> bool:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(connection)
                return True
        return False


def _is_dead(connection: Connection) -> bool:
    """An idle connection has nothing to say: if its socket is readable the server has closed it. Found before
    anything is sent, a restart of PostgreSQL costs no caller an unknown outcome, and no round trip is paid."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
