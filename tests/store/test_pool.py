"""Connections on loan: the one that came back last goes out first, and nobody waits while one lies idle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

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


async def test_one_caller_meets_the_same_connection_again_and_again(database_url: str) -> None:
    async with pooled(database_url, 4) as pool:
        met = set()
        for _ in range(10):
            async with pool.lease() as connection:
                await connection.execute("SELECT 1")
                met.add(pid(connection))
    assert len(met) == 1


async def test_several_at_once_have_one_each(database_url: str) -> None:
    async with pooled(database_url, 3) as pool, pool.lease() as one, pool.lease() as two, pool.lease() as three:
        assert len({pid(one), pid(two), pid(three)}) == 3


async def test_who_waits_gets_what_comes_back(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:

        async def take() -> int:
            async with pool.lease() as connection:
                await asyncio.sleep(0)
                return pid(connection)

        async with asyncio.timeout(20):
            assert len(set(await asyncio.gather(*(take() for _ in range(20))))) == 1


async def test_a_connection_that_has_died_is_replaced_before_anything_is_sent(database_url: str) -> None:
    async with pooled(database_url, 2) as pool:
        async with pool.lease() as connection:
            dead = pid(connection)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", (dead,))
        await asyncio.sleep(0.2)
        async with pool.lease() as connection:
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
            assert pid(connection) != dead


async def test_a_transaction_that_was_left_open_does_not_reach_the_next(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:
        async with pool.lease() as connection:
            await connection.execute("BEGIN")
        async with pool.lease() as connection:
            assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


async def test_all_are_closed_with_the_pool(database_url: str) -> None:
    async with pooled(database_url, 2) as pool, pool.lease() as connection:
        await connection.execute("SELECT 1")
    assert connection.closed
