"""Streams are told about new events after the commit, and not by the commit: only one transaction at a time can commit
with a notification."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.log import Notifier, announce_events, parse
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.runs import calls, lifecycle
from tests.workers import STEP, begin_demo_run
from tests.world import START_SECONDS, World, app_url

CALL = {"call_id": "c", "name": "t"}
STARTED = NewEvent(EventType.TOOL_STARTED, CALL | {"key": "k", "attempt": 1})
RESULT = NewEvent(EventType.TOOL_RESULT, CALL | {"text": "Done."})
MESSAGE = NewEvent(EventType.MESSAGE, {"role": "assistant", "text": "Done."})


@asynccontextmanager
async def opened(database_url: str) -> AsyncIterator[Database]:
    database = Database(app_url(database_url), DatabaseSettings(statement_seconds=80, pool_wait_seconds=30))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


class Listener:
    def __init__(self, connection: "AsyncConnection[Any]") -> None:
        self._connection = connection

    async def sessions_until(self, last: UUID) -> list[UUID]:
        """The sessions of all notifications up to the first one about this session, which must come."""
        found: list[UUID] = []
        async for one in self._connection.notifies(timeout=START_SECONDS):
            notification = parse(one.payload)
            found += () if notification is None else notification.session_ids
            if last in found:
                return found
        raise AssertionError("no notification")


@asynccontextmanager
async def listening(database_url: str) -> AsyncIterator[Listener]:
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("LISTEN quarterdeck_events")
        yield Listener(connection)


async def test_ids_are_announced_after_the_commit(database_url: str) -> None:
    announced: list[set[UUID]] = []
    first, second, undone = uuid4(), uuid4(), uuid4()

    async def work(connection: Connection) -> None:
        await announce_events(connection, [first])
        await announce_events(connection, [first, second])
        assert announced == []

    async def fail(connection: Connection) -> None:
        await announce_events(connection, [undone])
        await connection.execute("SELECT 1 / 0")

    async def nothing(connection: Connection) -> None:
        await connection.execute("SELECT 1")

    async with opened(database_url) as database:
        database.on_commit = announced.append
        await database.transaction(work, repeatable=True)
        with pytest.raises(Exception, match="Internal error"):
            await database.transaction(fail, repeatable=True)
        await database.transaction(nothing, repeatable=True)
        await database.statement(nothing, repeatable=True)
    assert announced == [{first, second}]


async def test_a_process_without_a_notifier_tells_streams_with_the_commit(database_url: str) -> None:
    session_id = uuid4()

    async def work(connection: Connection) -> None:
        await announce_events(connection, [session_id])

    async with listening(database_url) as listener, opened(database_url) as database:
        await database.transaction(work, repeatable=True)
        assert await listener.sessions_until(session_id) == [session_id]


async def test_no_write_of_a_run_notifies_by_its_commit(world: World) -> None:
    session_id, sentinel = UUID(await world.new_session()), uuid4()
    announced: list[set[UUID]] = []

    async def notify_sentinel(connection: Connection) -> None:
        await announce_events(connection, [sentinel])

    async with listening(world.database_url) as listener, opened(world.database_url) as database:
        run_id = UUID((await world.submit(str(session_id))).json()["run_id"])
        # By the API, which notifies after its commit too.
        await listener.sessions_until(session_id)
        database.on_commit = announced.append
        lease = await begin_demo_run(database, run_id)
        assert lease is not None
        await lifecycle.record(
            database, lease, [MESSAGE, NewEvent(EventType.TOOL_CALL, CALL | {"arguments": {}})], "demo", STEP
        )
        await calls.record_start(database, lease, STARTED)
        await calls.record_result(database, lease, RESULT)
        await lifecycle.record(database, lease, [MESSAGE], "demo", STEP, finish=True)
        assert announced == [{session_id}] * 5
        database.on_commit = None
        await database.transaction(notify_sentinel, repeatable=True)
        assert await listener.sessions_until(sentinel) == [sentinel]


async def test_the_notifier_tells_streams_what_was_committed(database_url: str) -> None:
    session_id = uuid4()

    async def work(connection: Connection) -> None:
        await announce_events(connection, [session_id])

    async with listening(database_url) as listener, opened(database_url) as database:
        notifier = Notifier(database)
        await database.transaction(work, repeatable=True)
        assert await listener.sessions_until(session_id) == [session_id]
        await notifier.close()
