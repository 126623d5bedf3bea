"""Pages of a log that several streams want at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.events.streams import PageLoader
from tests.world import AS_OWNER, app_url

SESSION = UUID(int=1)
APPEND = "INSERT INTO session_events (session_id, type, data) VALUES (%s, %s, '{}')"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'session_events'::regclass"


@pytest.fixture
async def loader(database_url: str) -> AsyncIterator[PageLoader]:
    database = Database(app_url(database_url), DatabaseSettings(lock_wait_seconds=60, statement_seconds=80))
    await database.open()
    yield PageLoader(database)
    await database.close()


async def test_readers_at_one_position_share_a_read(database_url: str, loader: PageLoader) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        await connection.execute(APPEND, (SESSION, "one"))
        asked = [asyncio.create_task(loader.load(SESSION, 0, None)) for _ in range(50)]
        elsewhere = asyncio.create_task(loader.load(SESSION, 1, None))
        await asyncio.sleep(0)
        # One that leaves takes nothing from the others.
        asked.pop(0).cancel()
        first, *others = await asyncio.gather(*asked)
        assert first is not None
        assert [event.type for event in first.events] == ["one"]
        assert all(other is first for other in others)
        assert await elsewhere is not first
        assert first.encoded(lambda events: b"%d" % len(events)) == b"1"
        assert first.encoded(lambda _: b"again") == b"1"


async def test_a_page_that_cannot_change_is_shared_while_it_is_held(database_url: str, loader: PageLoader) -> None:
    """Many clients that do not read then cost the memory of one."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        for _ in range(101):
            await connection.execute(APPEND, (SESSION, "one"))
        complete, last = await loader.load(SESSION, 0, None), await loader.load(SESSION, 100, None)
        assert complete is not None
        assert (len(complete.events), complete.more) == (100, True)
        assert await loader.load(SESSION, 0, None) is complete
        assert await loader.load(SESSION, 100, None) is not last, "others may have been added"
        assert complete.encoded(lambda events: b"%d" % len(events)) == b"100"
        assert complete.events == []


async def test_request_during_a_read_gets_a_later_page(database_url: str, loader: PageLoader) -> None:
    """It may have been told of an entry that the page which is being read does not hold."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:

        async def held_up(readers: int) -> bool:
            row = await (await connection.execute(WAITING)).fetchone()
            return row == (readers,)

        async with connection.transaction():
            await connection.execute("LOCK TABLE session_events")
            earlier = asyncio.create_task(loader.load(SESSION, 0, None))
            while not await held_up(1):
                await asyncio.sleep(0.01)
            await connection.execute(APPEND, (SESSION, "one"))
            later = asyncio.create_task(loader.load(SESSION, 0, None))
            while not await held_up(2):
                await asyncio.sleep(0.01)
        page = await later
        assert page is not None
        assert page is not await earlier
        assert [event.type for event in page.events] == ["one"]


async def test_the_database_is_away() -> None:
    settings = DatabaseSettings(pool_wait_seconds=0.2)
    database = Database("postgresql://127.0.0.1:1/nowhere", settings)
    await database.open()
    loader = PageLoader(database)
    for _ in range(2):
        assert await asyncio.gather(*[loader.load(SESSION, 0, None) for _ in range(3)]) == [None, None, None]
    await database.close()
