"""Pages of a session's log: their limits, and what they read of a log with large events."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from quarterdeck.conversations.events import store
from quarterdeck.db.database import Connection
from tests.world import AS_OWNER

_ADD = "INSERT INTO session_events (session_id, type, data) VALUES (%s, 'message', %s) RETURNING id"
# PostgreSQL compresses nothing of it.
_LARGE = "".join(f"{number:x}" for number in range(180_000))[:500_000]


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        yield connection


async def add(connection: Connection, session_id: UUID, text: str) -> int:
    row = await (await connection.execute(_ADD, (session_id, Jsonb({"text": text})))).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_page_ends_at_the_first_limit(connection: Connection) -> None:
    session_id, other_id = uuid4(), uuid4()
    ids = []
    for _ in range(5):
        ids.append(await add(connection, session_id, "x" * 100))
        await add(connection, other_id, "x")
    for after, count, page_bytes, expected, more in (
        (0, 5, 10_000, ids, False),
        (0, 4, 10_000, ids[:4], True),
        (0, 9, 10_000, ids, False),
        (ids[2], 9, 10_000, ids[3:], False),
        (ids[4], 9, 10_000, [], False),
        # The event that passes the limit belongs to the page, so that there is always one.
        (0, 5, 1, ids[:1], True),
        (0, 5, 150, ids[:2], True),
        (0, 2, 150, ids[:2], True),
        (ids[3], 5, 1, ids[4:], False),
    ):
        events, has_more = await store.page(connection, session_id, after, count, page_bytes)
        assert ([event.id for event in events], has_more) == (expected, more), (after, count, page_bytes)


async def test_large_events_beyond_the_page_are_not_read(connection: Connection) -> None:
    """One page of a log with 40 large events must not cost as much as the whole log."""
    session_id = uuid4()
    for _ in range(40):
        await add(connection, session_id, _LARGE)
    plan = await connection.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {store._PAGE}", (session_id, 0, 256 * 1024, 100, 256 * 1024, 100)
    )
    ((explained,),) = await plan.fetchall()
    top = explained[0]["Plan"]
    # An event has about 64 blocks. The first two are read once each: the second is not measured, but may be shown.
    assert top["Actual Rows"] == 1
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 3 * 64
