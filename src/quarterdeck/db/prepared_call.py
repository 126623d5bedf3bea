"""One statement that is sent again and again, in libpq's own terms: no cursor, no adaptation of values, one wait.

The library's `execute` costs 100 µs more for a lone call and 8 µs more for each input of a large one. What it promises
holds here too: nothing blocks, and a fault is raised as the library would raise it.
"""

import asyncio
from collections.abc import Sequence
from weakref import WeakSet

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from quarterdeck.db.pool import Connection

_BINARY = 1


class PreparedCall:
    def __init__(self, name: str, statement: str) -> None:
        self._name = name.encode()
        self._statement = statement.encode()
        self._prepared_on: WeakSet[Connection] = WeakSet()

    async def __call__(self, connection: Connection, values: Sequence[bytes | None]) -> PGresult:
        """Its rows. Values and rows are in PostgreSQL's binary form, texts in UTF-8. The connection must be idle."""
        if connection not in self._prepared_on:
            connection.pgconn.send_prepare(self._name, self._statement)
            await _answer(connection.pgconn)
            self._prepared_on.add(connection)
        connection.pgconn.send_query_prepared(self._name, values, [_BINARY] * len(values), _BINARY)
        return await _answer(connection.pgconn)


async def _answer(pgconn: PGconn) -> PGresult:
    """What PostgreSQL says to what was sent. Who is cancelled leaves a connection behind that is still at work, which
    the pool closes."""
    answer = _Answer(pgconn)
    try:
        answer.begin()
        result = await answer.arrived
    finally:
        answer.end()
    if result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result)
    return result


class _Answer:
    """Reads and writes as the event loop says that the socket is ready, until PostgreSQL is ready for the next."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._socket = pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._result: PGresult | None = None
        self._is_reading = self._is_writing = False
        self.arrived: asyncio.Future[PGresult] = self._loop.create_future()

    def begin(self) -> None:
        self._is_reading = True
        self._loop.add_reader(self._socket, self._read)
        if self._pgconn.flush():
            # More than the socket takes at once. PostgreSQL may have to be read from before it takes the rest.
            self._is_writing = True
            self._loop.add_writer(self._socket, self._write)

    def end(self) -> None:
        """In the turn of the loop in which the last was read: libpq may have closed the socket, and by the next its
        number may be another's, who would wait for ever."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        try:
            if not self._pgconn.flush():
                self._is_writing = False
                self._loop.remove_writer(self._socket)
        except psycopg.Error as fault:
            self._fail(fault)

    def _read(self) -> None:
        try:
            self._pgconn.consume_input()
            while not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    self._succeed()
                    return
                self._result = result
        except psycopg.Error as fault:
            self._fail(fault)

    def _succeed(self) -> None:
        self.end()
        if not self.arrived.done():
            assert self._result is not None
            self.arrived.set_result(self._result)

    def _fail(self, fault: psycopg.Error) -> None:
        self.end()
        if self._result is not None and self._result.status == ExecStatus.FATAL_ERROR:
            # PostgreSQL's last words say more than the end of the connection that follows them.
            self._succeed()
        elif not self.arrived.done():
            # Rows are no word that they were committed: PostgreSQL may send them first.
            self.arrived.set_exception(fault)
