"""SQL that counts runs and inputs. Each statement reads one bounded range of one index."""

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, created_at, first_id_at
from quarterdeck.db.database import Connection
from quarterdeck.insights.activity.model import CountedRuns, Window

# The workspace is part of the bounds and of the order so that only the index that begins with it fits. That index is
# partial on `attempt >= 0`, which holds for all runs: schema/08_runs.sql. The first 48 bits of an id are its time in
# milliseconds, taken from another clock than started_at: hence greatest(0, …).
_RUNS = """
WITH created AS MATERIALIZED (
    SELECT state, width_bucket(id, %s::uuid[]) - 1 AS bucket, CASE WHEN started_at IS NOT NULL THEN greatest(0, round(
        date_part('epoch', started_at) * 1000 - ('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint
    )) END AS wait_ms
    FROM (
        SELECT id, state, started_at FROM runs
        WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND attempt >= 0
        ORDER BY workspace_id DESC, id DESC LIMIT %s
    ) AS newest
)
SELECT state, NULL, count(*), NULL FROM created GROUP BY state
UNION ALL
SELECT NULL, bucket, count(*), percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY wait_ms)::bigint[]
FROM created WHERE wait_ms IS NOT NULL GROUP BY bucket
"""
_RUN_AT = """
SELECT id FROM runs
WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND attempt >= 0
ORDER BY workspace_id DESC, id DESC OFFSET %s LIMIT 1
"""
_UNFINISHED_BEFORE = """
SELECT state, count(*) FROM (
    SELECT state FROM runs
    WHERE (workspace_id, id) >= (%s, %s) AND (workspace_id, id) < (%s, %s)
      AND attempt >= 0 AND state IN ('queued', 'running')
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS newest
GROUP BY state
UNION ALL
SELECT state, count(*) FROM (
    SELECT state FROM runs
    WHERE (workspace_id, id) >= (%s, %s) AND (workspace_id, id) < (%s, %s) AND attempt >= 0 AND state = 'waiting'
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS newest_waiting
GROUP BY state
UNION ALL
SELECT state, count(*) FROM (
    SELECT state FROM runs
    WHERE (workspace_id, id) >= (%s, %s) AND (workspace_id, id) < (%s, %s) AND attempt >= 0 AND state = 'pending'
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS newest_pending
GROUP BY state
"""
_INPUTS = """
SELECT width_bucket(created_at, %s::timestamptz[]) - 1, count(*) FROM (
    SELECT created_at FROM session_events WHERE workspace_id = %s AND created_at >= %s ORDER BY created_at DESC LIMIT %s
) AS newest
GROUP BY 1
"""
_INPUT_AT = """
SELECT created_at FROM session_events WHERE workspace_id = %s AND created_at >= %s
ORDER BY created_at DESC OFFSET %s LIMIT 1
"""


async def runs(connection: Connection, workspace_id: UUID, window: Window, limit: int) -> CountedRuns:
    """Counts the newest `limit` runs created in the window."""
    starts = [first_id_at(start) for start in window.starts]
    values = (starts, workspace_id, starts[0], workspace_id, HIGHEST_ID, limit)
    by_state: Counter[str] = Counter()
    started: dict[int, tuple[int, int, int]] = {}
    for state, bucket, count, percentiles in await (await connection.execute(_RUNS, values)).fetchall():
        if state is not None:
            by_state[state] = count
        else:
            started[bucket] = (count, *percentiles)
    return CountedRuns(by_state, started)


async def run_limit_time(connection: Connection, workspace_id: UUID, window: Window, newer: int) -> datetime | None:
    """The time since which at most `newer` runs were created. None if that holds for the whole window."""
    values = (workspace_id, first_id_at(window.since), workspace_id, HIGHEST_ID, newer)
    row = await (await connection.execute(_RUN_AT, values)).fetchone()
    return None if row is None else created_at(row[0]) + timedelta(milliseconds=1)


async def unfinished_before(connection: Connection, workspace_id: UUID, since: datetime, limit: int) -> Counter[str]:
    """Runs created before `since` that have not ended."""
    values = (workspace_id, LOWEST_ID, workspace_id, first_id_at(since), limit)
    return Counter(dict(await (await connection.execute(_UNFINISHED_BEFORE, values * 3)).fetchall()))


async def inputs(connection: Connection, workspace_id: UUID, window: Window, limit: int) -> Counter[int]:
    """Counts the newest `limit` inputs accepted in the window, by bucket index."""
    starts = list(window.starts)
    values = (starts, workspace_id, window.since, limit)
    return Counter(dict(await (await connection.execute(_INPUTS, values)).fetchall()))


async def input_limit_time(connection: Connection, workspace_id: UUID, window: Window, newer: int) -> datetime | None:
    """The time since which at most `newer` inputs were accepted. None if that holds for the whole window."""
    row = await (await connection.execute(_INPUT_AT, (workspace_id, window.since, newer))).fetchone()
    return None if row is None else row[0] + timedelta(microseconds=1)
