"""Pages of a session's log: their limits, and that large events which are not returned are not read either."""

import random
from typing import Any
from uuid import UUID

import psycopg
import pytest

from quarterdeck.events import store
from tests.world import AS_OWNER

SESSION = UUID("01900000-0000-7000-8000-000000000001")
EVENTS = 20
# Nothing that PostgreSQL could compress: each event has 128 blocks outside of its row.
LARGE = random.Random(1).randbytes(512 * 1024).hex()
_ADD = """
INSERT INTO session_events (id, session_id, type, data)
SELECT n, %s, 'note', jsonb_build_object('text', %s::text) FROM generate_series(1, %s) n
"""
_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM read_log(%s, %s, %s, %s)"


async def add(database_url: str, text: str) -> "psycopg.AsyncConnection[Any]":
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER)
    await connection.execute(_ADD, (SESSION, text, EVENTS))
    return connection


@pytest.mark.parametrize(
    ("after", "count", "page_bytes", "ids", "more"),
    [
        (0, 100, 10_000, range(1, 21), False),
        (0, 20, 10_000, range(1, 21), False),
        (0, 19, 10_000, range(1, 20), True),
        (19, 1, 10_000, [20], False),
        (20, 1, 10_000, [], False),
        # An event has 16 bytes. The one that uses up the budget is the last.
        (0, 100, 1, [1], True),
        (0, 100, 16, [1], True),
        (0, 100, 17, [1, 2], True),
        (19, 100, 1, [20], False),
    ],
)
async def test_a_page_ends_at_the_first_limit(
    database_url: str, after: int, count: int, page_bytes: int, ids: list[int], more: bool
) -> None:
    async with await add(database_url, "four") as connection:
        events, found_more = await store.page(connection, SESSION, after, count, page_bytes)
    assert ([event.id for event in events], found_more) == (list(ids), more)


@pytest.mark.long
async def test_only_what_is_returned_is_read(database_url: str) -> None:
    async with await add(database_url, LARGE) as connection:
        # The first call also reads the catalogue.
        _, one, ten = [await blocks_read(connection, page_bytes) for page_bytes in (1, 1, 10 * len(LARGE))]
    assert one < ten / 4


async def blocks_read(connection: "psycopg.AsyncConnection[Any]", page_bytes: int) -> int:
    row = await (await connection.execute(_EXPLAIN, (SESSION, 0, 100, page_bytes))).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
