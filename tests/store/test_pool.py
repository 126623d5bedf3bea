"""Connections on loan: the one that came back last goes out first, and nobody waits while one lies idle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import psycopg_pool
import pytest

from quarterdeck.db.database import make_pool
from quarterdeck.db.pool import Connection, Pool
from quarterdeck.settings import DatabaseSettings


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


async def end(url: str, backend_pid: int) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("SELECT pg_terminate_backend(%s)", (backend_pid,))
    await asyncio.sleep(0.2)


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


async def test_who_is_cancelled_while_waiting_takes_no_connection_along(database_url: str) -> None:
    async with pooled(database_url, 1) as pool:
        for yields in range(4):
            async with pool.lease():
                waiting = asyncio.create_task(pool.take())
                await asyncio.sleep(0.01)
            # At any point between its connection's return and its own next step.
            for _ in range(yields):
                await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await pool.put_back(await waiting)
            async with asyncio.timeout(20), pool.lease() as connection:
                await connection.execute("SELECT 1")


async def test_who_has_waited_long_enough_is_told_so_and_nobody_else(database_url: str) -> None:
    pool = make_pool(database_url, DatabaseSettings(pool_wait_seconds=0.2), 1)
    await pool.open()
    async with pool.lease():
        with pytest.raises(psycopg_pool.PoolTimeout):
            await pool.take()
    async with pool.lease() as connection:
        await connection.execute("SELECT 1")
    await pool.close(5)


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "in a transaction"])
async def test_who_waits_gets_another_than_one_that_is_no_longer_fit(database_url: str, is_dead: bool) -> None:
    async with pooled(database_url, 1) as pool:

        async def ask() -> bool:
            async with pool.lease() as connection:
                return (await (await connection.execute("SELECT 1")).fetchone()) == (1,)

        connection = await pool.take()
        waiting = [asyncio.create_task(ask()) for _ in range(3)]
        await asyncio.sleep(0.01)
        if is_dead:
            await end(database_url, pid(connection))
        else:
            await connection.execute("BEGIN")
        await pool.put_back(connection)
        async with asyncio.timeout(20):
            assert await asyncio.gather(*waiting) == [True] * 3


async def test_who_waits_when_it_is_closed_is_told_so(database_url: str) -> None:
    pool = make_pool(database_url, DatabaseSettings(pool_wait_seconds=600), 1)
    await pool.open()
    connection = await pool.take()
    waiting = asyncio.create_task(pool.take())
    await asyncio.sleep(0.01)
    await pool.close(5)
    async with asyncio.timeout(20):
        with pytest.raises(psycopg_pool.PoolClosed):
            await waiting
    await pool.put_back(connection)


async def test_a_connection_that_has_died_is_replaced_before_anything_is_sent(database_url: str) -> None:
    async with pooled(database_url, 2) as pool:
        async with pool.lease() as connection:
            dead = pid(connection)
        await end(database_url, dead)
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
