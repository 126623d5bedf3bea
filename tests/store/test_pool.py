"""The pool: its connections are shared, alive, and clean when they are lent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import make_pool
from quarterdeck.db.pool import Connection, Pool


@asynccontextmanager
async def pooled(url: str, size: int) -> AsyncIterator[Pool]:
    pool = make_pool(url, DatabaseSettings(), size)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close(5)


def pid(connection: Connection) -> int:
    return connection.info.backend_pid


async def test_concurrent_callers_have_a_connection_each(database_url: str) -> None:
    async with pooled(database_url, 3) as pool, pool.lease() as one, pool.lease() as two, pool.lease() as three:
        assert len({pid(one), pid(two), pid(three)}) == 3


async def test_a_waiting_caller_gets_the_connection_that_is_returned(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:

        async def take() -> int:
            async with pool.lease() as connection:
                await asyncio.sleep(0)
                return pid(connection)

        async with asyncio.timeout(20):
            assert len(set(await asyncio.gather(*(take() for _ in range(20))))) == 1


async def test_a_dead_connection_is_replaced_before_anything_is_sent(database_url: str) -> None:
    async with pooled(database_url, 2) as pool:
        async with pool.lease() as connection:
            dead = pid(connection)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", (dead,))
        await asyncio.sleep(0.2)
        async with pool.lease() as connection:
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
            assert pid(connection) != dead


async def test_a_transaction_that_was_left_open_is_rolled_back(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:
        async with pool.lease() as connection:
            await connection.execute("BEGIN")
        async with pool.lease() as connection:
            assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


async def test_a_cancelled_caller_leaves_no_statement_running(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:
        entered = asyncio.Event()

        async def sleep() -> None:
            async with pool.lease() as connection:
                entered.set()
                await connection.execute("SELECT pg_sleep(600)")

        sleeping = asyncio.create_task(sleep())
        await entered.wait()
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
            query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
            while not (await other.execute(query)).rowcount:
                await asyncio.sleep(0.01)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert (await other.execute(query)).rowcount == 0
        async with pool.lease() as connection:
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)


async def test_closing_the_pool_closes_all_connections(database_url: str) -> None:
    async with pooled(database_url, 2) as pool, pool.lease() as connection:
        await connection.execute("SELECT 1")
    assert connection.closed
