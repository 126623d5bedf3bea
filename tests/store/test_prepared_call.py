"""A statement that is sent without a cursor: its faults are those that the library would raise, and nothing blocks."""

import asyncio
import os
import socket
from contextlib import suppress

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from quarterdeck.db import faults
from quarterdeck.db.database import make_pool
from quarterdeck.db.pool import Connection
from quarterdeck.db.prepared_call import PreparedCall, _Answer
from quarterdeck.settings import DatabaseSettings
from tests.store.test_pool import pid, pooled

ECHO = PreparedCall("echo", "SELECT $1::bytea, $2::text")
DIVIDE = PreparedCall("divide", "SELECT 1 / $1::int")
SLEEP = PreparedCall("sleep", "SELECT pg_sleep($1)::text")
A_WHILE = bytes.fromhex("4014000000000000")  # 5.0


async def connected(url: str) -> Connection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


@pytest.mark.parametrize("size", [0, 1, 100_000, 20_000_000])
async def test_what_is_sent_arrives_however_much_it_is(database_url: str, size: int) -> None:
    sent = os.urandom(size)
    async with await connected(database_url) as connection:
        result = await ECHO(connection, [sent, None])
        assert (result.ntuples, result.get_value(0, 0), result.get_value(0, 1)) == (1, sent, None)


async def test_others_go_on_while_it_waits(database_url: str) -> None:
    async with await connected(database_url) as one, await connected(database_url) as two:
        waiting = asyncio.create_task(SLEEP(one, [bytes.fromhex("3fe0000000000000")]))  # 0.5
        await ECHO(two, [b"", b"x"])
        assert not waiting.done()
        await waiting


async def test_it_is_prepared_once_on_each_connection(database_url: str) -> None:
    for _ in range(2):
        async with await connected(database_url) as connection:
            for _ in range(3):
                await ECHO(connection, [b"", None])
            cursor = await connection.execute("SELECT name, generic_plans + custom_plans FROM pg_prepared_statements")
            assert await cursor.fetchall() == [("echo", 3)]


async def test_a_fault_is_raised_as_the_library_does_and_the_connection_goes_on(database_url: str) -> None:
    async with await connected(database_url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero) as refused:
            await DIVIDE(connection, [bytes(4)])
        assert (refused.value.sqlstate, refused.value.diag.severity_nonlocalized) == ("22012", "ERROR")
        assert not faults.connection_lost(refused.value)
        assert (await DIVIDE(connection, [(1).to_bytes(4)])).get_value(0, 0) == (1).to_bytes(4)


async def test_a_statement_that_cannot_be_prepared_is_not_taken_for_prepared(database_url: str) -> None:
    of_nothing = PreparedCall("of_nothing", "SELECT * FROM nothing")
    async with await connected(database_url) as connection:
        for _ in range(2):
            with pytest.raises(psycopg.errors.UndefinedTable):
                await of_nothing(connection, [])


async def test_the_last_words_of_a_server_are_heard(database_url: str) -> None:
    async with await connected(database_url) as connection, await connected(database_url) as other:
        waiting = asyncio.create_task(SLEEP(connection, [A_WHILE]))
        await asyncio.sleep(0.2)
        await other.execute("SELECT pg_terminate_backend(%s)", (pid(connection),))
        with pytest.raises(psycopg.errors.AdminShutdown) as lost:
            await waiting
        assert faults.connection_lost(lost.value)


async def test_a_connection_that_is_gone_without_a_word_is_lost(database_url: str) -> None:
    async with await connected(database_url) as connection:
        waiting = asyncio.create_task(SLEEP(connection, [A_WHILE]))
        await asyncio.sleep(0.2)
        with _socket_of(connection) as line:
            line.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError) as lost:
            await waiting
        assert lost.value.sqlstate is None
        assert faults.connection_lost(lost.value)
        with pytest.raises(psycopg.OperationalError):
            await SLEEP(connection, [A_WHILE])


async def test_who_is_cancelled_does_not_leave_its_answer_to_the_next(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:

        async def sleep() -> None:
            async with pool.lease() as connection:
                await SLEEP(connection, [A_WHILE])

        waiting = asyncio.create_task(sleep())
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(10), pool.lease() as connection:
            assert connection.pgconn.transaction_status == TransactionStatus.IDLE
            assert (await ECHO(connection, [b"mine", None])).get_value(0, 0) == b"mine"


async def test_texts_are_utf8_whatever_the_environment_says(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    pool = make_pool(database_url, DatabaseSettings(), 1)
    await pool.open()
    try:
        async with pool.lease() as connection:
            assert (await ECHO(connection, [b"", "é😀".encode()])).get_value(0, 1) == "é😀".encode()
    finally:
        await pool.close(5)


def _socket_of(connection: Connection) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))


async def test_a_lost_connection_is_no_longer_watched_in_the_same_turn(database_url: str) -> None:
    """libpq has closed its socket, whose number the next to be opened gets: watched in vain, it would wait for ever."""
    loop = asyncio.get_running_loop()
    async with await connected(database_url) as connection, await connected(database_url) as other:
        descriptor = connection.pgconn.socket
        connection.pgconn.send_query(b"SELECT pg_sleep(60)")
        answer = _Answer(connection.pgconn)
        answer.begin()
        await other.execute("SELECT pg_terminate_backend(%s)", (pid(connection),))
        async with asyncio.timeout(20):
            while not answer.arrived.done():
                await asyncio.sleep(0)
        assert not loop.remove_reader(descriptor), "it was still watched"
        with suppress(psycopg.Error):
            answer.arrived.result()


async def test_rows_that_came_before_their_commit_are_no_answer(database_url: str) -> None:
    """A large answer is sent in part while the statement still runs, and its commit comes after all of it."""
    async with await connected(database_url) as connection:
        answer = _Answer(connection.pgconn)
        connection.pgconn.send_query(b"SELECT 1")
        answer.begin()
        result = await answer.arrived
        lost = _Answer(connection.pgconn)
        # As far as it came before the connection went.
        lost._result = result
        lost._fail(psycopg.OperationalError("gone"))
        with pytest.raises(psycopg.OperationalError):
            await lost.arrived


async def test_a_connection_that_is_dead_when_it_is_sent_to_is_not_watched_either(database_url: str) -> None:
    async with await connected(database_url) as connection:
        descriptor = connection.pgconn.socket
        await end(database_url, connection)
        with pytest.raises(psycopg.OperationalError):
            await ECHO(connection, [b"", b"x"])
        assert not asyncio.get_running_loop().remove_reader(descriptor)


async def end(url: str, connection: Connection) -> None:
    async with await connected(url) as other:
        await other.execute("SELECT pg_terminate_backend(%s)", (pid(connection),))
    await asyncio.sleep(0.2)
