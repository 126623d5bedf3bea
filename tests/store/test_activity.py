"""What counting costs, and what it may not cost others."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from quarterdeck.db.database import Connection
from quarterdeck.insights import service
from quarterdeck.insights.model import CountLimits
from quarterdeck.workspaces import service as workspaces
from tests.store.test_sql_prepares import ALL, as_prepared
from tests.world import AS_OWNER

# A run with two inputs each second, the last one now. Each has a session of its own.
FILL = """
WITH made AS (
    SELECT n, gen_random_uuid() AS session_id, w.id AS workspace_id, w.owner_id, %s - make_interval(secs => n) AS at
    FROM workspaces w, generate_series(0, %s - 1) n WHERE w.id = %s
), sessions_made AS (
    INSERT INTO sessions (id, workspace_id, created_by) SELECT session_id, workspace_id, owner_id FROM made
), runs_made AS (
    INSERT INTO runs (id, session_id, workspace_id, state, started_at, first_input, last_input, consumed_through)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(session_id::text), 14))
           ::uuid, session_id, workspace_id, 'succeeded', at, 1, 1, 1
    FROM made
)
INSERT INTO session_events (session_id, workspace_id, type, created_at, data)
SELECT session_id, workspace_id, 'input.accepted', at, '{}' FROM made, generate_series(1, 2)
"""
FETCHED = """
SELECT relname::text, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
WHERE relname IN ('runs', 'session_events')
"""
WIDE = CountLimits(runs=100_000, inputs=100_000)


async def fetched(connection: Connection) -> dict[str, int]:
    """Rows that this connection has looked at so far, by any way."""
    return dict(await (await connection.execute(FETCHED)).fetchall())


async def new_workspace(connection: Connection, email: str) -> UUID:
    return await workspaces.create_workspace(connection, "x", email)


@pytest.mark.long
@pytest.mark.parametrize("known", ["new", "when_empty", "analysed"])
async def test_only_the_window_of_the_workspace_is_read(database_url: str, known: str) -> None:
    """Whatever PostgreSQL knew of the tables when it made its plan, and however large another workspace is."""
    now = datetime.now(UTC)
    window = service.activity_window(now, 5)
    inside = int((now - window.since).total_seconds()) + 1
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        for table in ("runs", "session_events"):
            # It would change what PostgreSQL knows in the middle of the test.
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        small, large = [await new_workspace(connection, f"{one}@example.com") for one in "ab"]
        if known == "when_empty":
            for _ in range(12):
                await service.count_activity(connection, small, window, WIDE)
        for workspace_id, count in ((small, 1000), (large, 10_000)):
            await connection.execute(FILL, (now, count, workspace_id))
        if known == "analysed":
            await connection.execute("ANALYZE runs, session_events")
        for _ in range(12):
            async with connection.transaction():
                before = await fetched(connection)
                body = await service.count_activity(connection, small, window, WIDE)
                after = await fetched(connection)
            assert body.runs_by_state.succeeded == inside
            assert sum(one.count for one in body.inputs) == 2 * inside
            # Once to see whether there are too many, once to count them.
            assert after["runs"] - before["runs"] <= 2 * inside
            assert after["session_events"] - before["session_events"] <= 2 * (2 * inside)


@pytest.mark.parametrize(
    ("reach", "runs"),
    [
        (CountLimits(runs=100, inputs=10_000), 100),
        (CountLimits(runs=10_000, inputs=50), 25),
        (CountLimits(runs=30, inputs=50), 25),
    ],
    ids=["too many runs", "too many inputs", "too many of both"],
)
async def test_the_window_is_cut_short_where_too_much_came_in(database_url: str, reach: CountLimits, runs: int) -> None:
    """Both are counted from the same moment on, and wholly."""
    # Ids know no more than milliseconds.
    now = datetime.now(UTC).replace(microsecond=0)
    window = service.activity_window(now, 60)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        workspace_id = await new_workspace(connection, "a@example.com")
        await connection.execute(FILL, (now, 1000, workspace_id))
        whole = await service.count_activity(connection, workspace_id, window, WIDE)
        assert whole.since == window.since
        assert whole.runs_by_state.succeeded == 1000
        body = await service.count_activity(connection, workspace_id, window, reach)
    assert now - timedelta(seconds=runs) < body.since <= now - timedelta(seconds=runs - 1)
    assert body.runs_by_state.succeeded == sum(one.runs for one in body.time_to_start) == runs
    assert sum(one.count for one in body.inputs) == 2 * runs
    assert body.inputs[0].at == body.time_to_start[0].at == body.since
    later = [one for one in whole.inputs if one.at > body.since]
    assert body.inputs[1:] == later, "what is not cut is as it was"


# Retention reads the runs of a workspace from the oldest on, as the charts do, and says so by `attempt >= 0`. There is
# no other index in this order.
READ_BY_AGE = ["sessions/expiry_store _OLD_RUNS"]


def test_worker_statements_do_not_use_chart_indexes(database_url: str) -> None:
    """On empty tables all plans cost the same. One that was made there is kept while they grow. Statements find runs by
    their session or id, except those in `READ_BY_AGE`."""
    found = []
    with psycopg.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        numbers = itertools.count()
        for constant in ALL:
            if not constant.name.startswith(("runs/", "sessions/", "webhooks/")) or "runs" not in constant.text:
                continue
            name, statement = f"s{next(numbers)}", as_prepared(constant.text)
            connection.execute(f"PREPARE {name} AS {statement}".encode())
            nulls = ", ".join(["NULL"] * len(re.findall(r"\$\d+", statement)))
            explained = connection.execute(f"EXPLAIN EXECUTE {name}{nulls and f'({nulls})'}".encode()).fetchall()
            if re.search("runs_(created|active)", str(explained)):
                found.append(constant.name)
        assert next(numbers) > 15
    assert found == READ_BY_AGE


async def test_steering_still_updates_the_row_in_place(database_url: str) -> None:
    """A heap-only update writes to no index. One on what steering changes would end that."""
    steer = "UPDATE runs SET last_input = last_input + 1, inputs_accepted = inputs_accepted + 1, updated_at = now()"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        workspace_id = await new_workspace(connection, "a@example.com")
        await connection.execute(FILL, (datetime.now(UTC), 1, workspace_id))
        async with connection.transaction():
            await connection.execute(steer)
            counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'runs'"
            assert await (await connection.execute(counts)).fetchall() == [(1, 1)]
