"""A page of sessions reads its own rows; with a search, those of its workspace."""

from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID
from quarterdeck.db.database import Connection
from quarterdeck.sessions import store
from quarterdeck.workspaces import service as workspaces
from tests.world import AS_OWNER

# In each of two workspaces, one session in ten archived. The ids of both alternate.
SESSIONS = 5000
ARCHIVED = SESSIONS // 10
FILL = """
INSERT INTO sessions (id, workspace_id, title, created_by, archived_at)
SELECT lpad(to_hex(n * 2 + %s), 32, '0')::uuid, w.id, CASE WHEN n %% 3 = 0 THEN 'Often ' || n ELSE 'Other ' || n END,
       w.owner_id, CASE WHEN n %% 10 = 0 THEN now() END
FROM workspaces w, generate_series(1, %s) n WHERE w.id = %s
"""
FILL_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through)
SELECT gen_random_uuid(), id, workspace_id, state, 1, 1, 0
FROM sessions, unnest(ARRAY['queued', 'succeeded', 'failed', 'succeeded']) AS state
"""
FETCHED = """
SELECT relname::text, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname IN ('sessions', 'runs')
"""
LIMIT = 50


async def fetched(connection: Connection) -> dict[str, int]:
    """Rows that this transaction has read."""
    return dict(await (await connection.execute(FETCHED)).fetchall())


async def pages(
    connection: Connection, workspace_id: UUID, *, archived: bool, search: str | None, newest_first: bool
) -> AsyncIterator[tuple[int, int, int]]:
    """The length of the first page, and how many sessions and runs were read for it. Repeated until PostgreSQL has a
    generic plan."""
    start = HIGHEST_ID if newest_first else LOWEST_ID
    for _ in range(12):
        async with connection.transaction():
            before = await fetched(connection)
            page = await store.page(
                connection,
                workspace_id,
                start,
                LIMIT,
                default_model="demo",
                archived=archived,
                search=search,
                newest_first=newest_first,
            )
            after = await fetched(connection)
            yield len(page), after["sessions"] - before["sessions"], after["runs"] - before["runs"]


@pytest.mark.long
@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("first_planned", ["full", "empty"])
async def test_a_page_reads_only_its_rows(database_url: str, newest_first: bool, first_planned: str) -> None:
    """Also if the plan was first made while the tables were empty. The ANALYZE stands for autovacuum, which runs within
    a minute and replaces such plans."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        ids = [await workspaces.create_workspace(connection, "x", f"{one}@example.com") for one in "ab"]
        for table in ("sessions", "runs"):
            # It would change the plans in the middle of the test.
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        # Archived, search, length of the page, how many sessions may be read for it.
        cases = (
            (False, None, LIMIT, 2 * LIMIT),
            (True, None, LIMIT, 2 * LIMIT),
            (False, "OFTEN", LIMIT, 4 * LIMIT),
            (True, "often", LIMIT, 4 * LIMIT),
            (False, "nowhere", 0, SESSIONS - ARCHIVED),
            (True, "nowhere", 0, ARCHIVED),
        )
        if first_planned == "empty":
            for archived, search, _, _ in cases:
                async for _ in pages(connection, ids[0], archived=archived, search=search, newest_first=newest_first):
                    pass
        for number, workspace_id in enumerate(ids):
            await connection.execute(FILL, (number, SESSIONS, workspace_id))
        await connection.execute(FILL_RUNS)
        await connection.execute("ANALYZE sessions, runs")
        for archived, search, expected, most in cases:
            async for length, sessions, runs in pages(
                connection, ids[0], archived=archived, search=search, newest_first=newest_first
            ):
                assert length == expected
                assert sessions <= most, (archived, search, sessions)
                # The active one and the last one of each session.
                assert runs <= 2 * LIMIT, (archived, search, runs)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_a_small_workspace_does_not_pay_for_a_large_one(database_url: str, newest_first: bool) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        ids = [await workspaces.create_workspace(connection, "x", f"{one}@example.com") for one in "ab"]
        for number, (workspace_id, count) in enumerate(zip(ids, (SESSIONS, 20), strict=True)):
            await connection.execute(FILL, (number, count, workspace_id))
        await connection.execute("ANALYZE sessions")
        for search, expected in ((None, 18), ("often", 6), ("nowhere", 0)):
            for workspace_id in ids:
                async for length, sessions, _ in pages(
                    connection, workspace_id, archived=False, search=search, newest_first=newest_first
                ):
                    if workspace_id == ids[1]:
                        assert length == expected
                        assert sessions <= 20, (search, sessions)
