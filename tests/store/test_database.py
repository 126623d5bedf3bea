"""Waiting for locks and for connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from psycopg import AsyncConnection

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Connection, Database
from tests.world import app_url

LOCK = "SELECT pg_advisory_xact_lock(1)"
# Nothing here is meant to end by a timeout unless a test says so.
PATIENT: dict[str, float] = {"lock_wait_seconds": 60, "statement_seconds": 80, "pool_wait_seconds": 30}


@asynccontextmanager
async def opened(database_url: str, **settings: float) -> AsyncIterator[Database]:
    database = Database(app_url(database_url), DatabaseSettings(**(PATIENT | settings)))  # type: ignore[arg-type]
    await database.open()
    try:
        await _until_connected(database)
        yield database
    finally:
        await database.close()


async def _until_connected(database: Database) -> None:
    """On a busy machine the first connection takes longer than the waits of some tests."""
    while True:
        with suppress(ServiceError):
            return await database.read(_do_nothing)


async def _do_nothing(_: Connection) -> None:
    pass


class Gate:
    """Work that keeps its connection until it is released."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    async def work(self, _: Connection) -> None:
        self.entered.set()
        await self.released.wait()


async def lock(connection: Connection) -> str:
    await connection.execute(LOCK)
    return "locked"


async def nothing(_: Connection) -> str:
    return "done"


async def message_of(running: "asyncio.Task[str]") -> str:
    with pytest.raises(ServiceError) as raised:
        await running
    return raised.value.message


# --- locks ---


@asynccontextmanager
async def holding(database_url: str, *statements: str) -> AsyncIterator[None]:
    """Another transaction, of the owner of the tables, keeps the locks that these statements take."""
    async with await AsyncConnection.connect(database_url) as holder:
        for statement in statements:
            await holder.execute(statement.encode())
        yield


async def test_a_connection_is_free_while_its_work_waits_for_a_lock(database_url: str) -> None:
    attempts = 0

    async def count_and_lock(connection: Connection) -> str:
        nonlocal attempts
        attempts += 1
        return await lock(connection)

    async with opened(database_url, pool_connections=1) as database:
        async with holding(database_url, LOCK):
            waiting = asyncio.create_task(database.transaction(count_and_lock, repeatable=False))
            while attempts < 3:
                assert await database.read(nothing) == "done"
            assert not waiting.done()
        assert await waiting == "locked"


async def test_a_lock_that_stays_taken_is_a_conflict_for_changes(database_url: str) -> None:
    async def read(connection: Connection) -> str:
        await connection.execute("SELECT FROM workspaces")
        return "read"

    async with opened(database_url, lock_wait_seconds=0.3) as database:
        async with holding(database_url, LOCK, "LOCK TABLE app.workspaces IN ACCESS EXCLUSIVE MODE"):
            changes = [
                asyncio.create_task(database.transaction(lock, repeatable=False)),
                asyncio.create_task(database.statement(lock, repeatable=True)),
            ]
            assert [await message_of(change) for change in changes] == [errors.locked().message] * 2
            reading = asyncio.create_task(database.read(read))
            assert await message_of(reading) == errors.unavailable().message, "a read stores nothing to conflict with"
        assert await database.transaction(lock, repeatable=False) == "locked"


# --- shares ---


async def test_one_owner_leaves_connections_to_others(database_url: str) -> None:
    async with opened(database_url, pool_connections=4, workspace_share=0.5) as database:
        gates = [Gate(), Gate()]
        tasks = [asyncio.create_task(database.read(gate.work, owner="a")) for gate in gates]
        for gate in gates:
            await gate.entered.wait()
        third = asyncio.create_task(database.read(nothing, owner="a"))
        assert await database.read(nothing, owner="b") == "done"
        assert not third.done()
        gates[0].released.set()
        assert await third == "done"
        gates[1].released.set()
        await asyncio.gather(*tasks)


async def test_an_owner_has_at_least_one_connection(database_url: str) -> None:
    async with opened(database_url, pool_connections=1, workspace_share=0.1) as database:
        assert await database.read(nothing, owner="a") == "done"


async def test_work_of_the_process_is_not_held_to_a_share(database_url: str) -> None:
    async with opened(database_url, pool_connections=4, workspace_share=0.25) as database:
        gates = [Gate() for _ in range(4)]
        tasks = [asyncio.create_task(database.read(gate.work)) for gate in gates]
        for gate in gates:
            await gate.entered.wait()
            gate.released.set()
        await asyncio.gather(*tasks)


async def test_an_owner_that_waits_too_long_for_its_share_is_told_to_come_back(database_url: str) -> None:
    gate = Gate()
    async with opened(database_url, pool_connections=2, pool_wait_seconds=0.2) as database:
        holding = asyncio.create_task(database.read(gate.work, owner="a"))
        await gate.entered.wait()
        waiting = asyncio.create_task(database.transaction(nothing, repeatable=False, owner="a"))
        assert await message_of(waiting) == errors.unavailable().message, "nothing was sent: the outcome is known"
        gate.released.set()
        await holding
