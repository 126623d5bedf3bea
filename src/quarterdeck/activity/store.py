"""Counting runs and inputs. Each statement reads one stretch of one index, and no more of it than it is told to."""

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from quarterdeck.activity.model import CountedRuns, Window
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, created_at, first_id_at
from quarterdeck.db.database import Connection

# The workspace is part of the bounds and of the order, so that only the index that begins with it serves. It knows runs
# for which `attempt >= 0`, which are all: see 0008_activity.sql. The first 48 bits of an id are its milliseconds. They
# are of another clock than started_at.
_RUNS = """
WITH created AS MATERIALIZED (
    SELECT state, width_bucket(id, %s::uuid[]) - 1 AS place, CASE WHEN started_at IS NOT NULL THEN greatest(0, round(
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
SELECT NULL, place, count(*), percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY wait_ms)::bigint[]
FROM created WHERE wait_ms IS NOT NULL GROUP BY place
"""
_RUN_AT = """
SELECT id FROM runs
WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND attempt >= 0
ORDER BY workspace_id DESC, id DESC OFFSET %s LIMIT 1
"""
_ACTIVE_BEFORE = """
SELECT state, count(*) FROM (
    SELECT state FROM runs
    WHERE (workspace_id, id) >= (%s, %s) AND (workspace_id, id) < (%s, %s)
      AND attempt >= 0 AND state IN ('queued', 'running')
    ORDER BY workspace_id DESC, id DESC LIMIT %s
) AS newest
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


async def runs(connection: Connection, workspace_id: UUID, window: Window, most: int) -> CountedRuns:
    """The newest of those that were created since the window began."""
    starts = [first_id_at(start) for start in window.starts]
    values = (starts, workspace_id, starts[0], workspace_id, HIGHEST_ID, most)
    by_state: Counter[str] = Counter()
    started: dict[int, tuple[int, int, int]] = {}
    for state, place, count, percentiles in await (await connection.execute(_RUNS, values)).fetchall():
        if state is not None:
            by_state[state] = count
        else:
            started[place] = (count, *percentiles)
    return CountedRuns(by_state, started)


async def after_run(connection: Connection, workspace_id: UUID, window: Window, newer: int) -> datetime | None:
    """The moment since which no more than `newer` runs were created. None: that holds for the whole window."""
    values = (workspace_id, first_id_at(window.since), workspace_id, HIGHEST_ID, newer)
    row = await (await connection.execute(_RUN_AT, values)).fetchone()
    return None if row is None else created_at(row[0]) + timedelta(milliseconds=1)


async def active_before(connection: Connection, workspace_id: UUID, since: datetime, most: int) -> Counter[str]:
    """Runs that were created earlier and have not ended yet."""
    values = (workspace_id, LOWEST_ID, workspace_id, first_id_at(since), most)
    return Counter(dict(await (await connection.execute(_ACTIVE_BEFORE, values)).fetchall()))


async def inputs(connection: Connection, workspace_id: UUID, window: Window, most: int) -> Counter[int]:
    """The newest of those that were accepted since the window began, by the place of their stretch in it."""
    starts = list(window.starts)
    values = (starts, workspace_id, window.since, most)
    return Counter(dict(await (await connection.execute(_INPUTS, values)).fetchall()))


async def after_input(connection: Connection, workspace_id: UUID, window: Window, newer: int) -> datetime | None:
    """The same for inputs that were accepted."""
    row = await (await connection.execute(_INPUT_AT, (workspace_id, window.since, newer))).fetchone()
    return None if row is None else row[0] + timedelta(microseconds=1)
