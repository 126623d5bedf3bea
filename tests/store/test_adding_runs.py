"""Adding a run costs the same in sessions with few and with many runs."""

from uuid import UUID

import psycopg

from quarterdeck.core.ids import new_id
from tests.world import Server, World

ADD_FAILED = """
INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through, finished_at)
SELECT uuidv7(), %s, %s, 'failed', n, n, n - 1, now() FROM generate_series(1, %s::integer) n
"""
ADD = """
INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through)
VALUES (%s, %s, %s, 'pending', 7, 7, 6)
RETURNING takes_over
"""
READ = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'runs'"


async def rows_read(world: World, database_url: str, runs: int) -> int:
    """To add a run to a session that has so many."""
    session_id = UUID(await world.new_session())
    await world.execute(ADD_FAILED, session_id, world.workspace_id, runs)
    async with await psycopg.AsyncConnection.connect(database_url, options="-c search_path=app") as connection:
        added = await connection.execute(ADD, (new_id(), session_id, world.workspace_id))
        assert await added.fetchone() == ([],)
        row = await (await connection.execute(READ)).fetchone()
        assert row is not None
        return int(row[0])


async def test_work_does_not_grow_with_the_runs_of_the_session(world: World, server: Server) -> None:
    assert await rows_read(world, server.database_url, 10) <= 10
    assert await rows_read(world, server.database_url, 3_000) <= 10
