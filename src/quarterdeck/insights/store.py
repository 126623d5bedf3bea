"""SQL that counts runs and inputs. Each statement reads one bounded range of one index."""

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, created_at, first_id_at
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_records, fetch_value
from quarterdeck.insights.model import AgentVersionStats, CountedRuns, UsageGroup, UsageItem, Window

# The workspace is part of the bounds and of the order so that only the index that begins with it fits. That index is
# partial on `attempt >= 0`, which holds for all runs: schema/09_runs.sql. The first 48 bits of an id are its time in
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
# Apart, because each group of states has its own index.
_UNFINISHED_BEFORE = "UNION ALL".join(
    f"""
SELECT state, count(*) FROM (
    SELECT state FROM runs
    WHERE (workspace_id, id) >= (%(workspace)s, %(lowest)s) AND (workspace_id, id) < (%(workspace)s, %(end)s)
      AND attempt >= 0 AND state {condition}
    ORDER BY workspace_id DESC, id DESC LIMIT %(limit)s
) AS newest
GROUP BY state
"""  # noqa: S608  built from constants
    for condition in ("IN ('queued', 'running')", "= 'waiting'", "= 'pending'")
)
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


async def count_runs(connection: Connection, workspace_id: UUID, window: Window, limit: int) -> CountedRuns:
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
    values = {"workspace": workspace_id, "lowest": LOWEST_ID, "end": first_id_at(since), "limit": limit}
    return Counter(dict(await (await connection.execute(_UNFINISHED_BEFORE, values)).fetchall()))


async def count_inputs(connection: Connection, workspace_id: UUID, window: Window, limit: int) -> Counter[int]:
    """Counts the newest `limit` inputs accepted in the window, by bucket index."""
    starts = list(window.starts)
    values = (starts, workspace_id, window.since, limit)
    return Counter(dict(await (await connection.execute(_INPUTS, values)).fetchall()))


async def input_limit_time(connection: Connection, workspace_id: UUID, window: Window, newer: int) -> datetime | None:
    """The time since which at most `newer` inputs were accepted. None if that holds for the whole window."""
    row = await (await connection.execute(_INPUT_AT, (workspace_id, window.since, newer))).fetchone()
    return None if row is None else row[0] + timedelta(microseconds=1)


_AGENT_RUN_AT = """
SELECT id FROM runs WHERE (agent_id, id) >= (%s, %s) AND (agent_id, id) < (%s, %s) AND workspace_id = %s
ORDER BY agent_id DESC, id DESC OFFSET %s LIMIT 1
"""
# A run with an agent has begun, so that started_at is set. greatest() ignores NULL.
_VERSIONS = """
SELECT agent_version AS version, count(*) AS runs, count(*) FILTER (WHERE state = 'failed') AS failures,
       sum(input_tokens)::bigint AS input_tokens, sum(cached_tokens)::bigint AS cached_tokens,
       sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cost_usd)::float8 AS cost_usd,
       avg(seconds)::float8 AS mean_seconds, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50_seconds,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95_seconds
FROM (
    SELECT agent_version, state, input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd,
           CASE WHEN finished_at IS NOT NULL
                THEN greatest(0, date_part('epoch', finished_at - started_at) - waited_seconds) END AS seconds
    FROM runs WHERE (agent_id, id) >= (%s, %s) AND (agent_id, id) < (%s, %s) AND workspace_id = %s
    ORDER BY agent_id DESC, id DESC LIMIT %s
) AS newest
GROUP BY agent_version ORDER BY agent_version DESC LIMIT %s
"""


async def run_at(
    connection: Connection, workspace_id: UUID, agent_id: UUID, lowest: UUID, end: UUID, newer: int
) -> UUID | None:
    """The newest run with at least `newer` runs after it. None: there are not so many."""
    values = (agent_id, lowest, agent_id, end, workspace_id, newer)
    return await fetch_value(connection, _AGENT_RUN_AT, values)


async def version_stats(
    connection: Connection,
    workspace_id: UUID,
    agent_id: UUID,
    lowest: UUID,
    end: UUID,
    max_runs: int,
    max_versions: int,
) -> list[AgentVersionStats]:
    """Sums of the newest `max_runs` runs from `lowest` until before `end`."""
    values = (agent_id, lowest, agent_id, end, workspace_id, max_runs, max_versions)
    return await fetch_records(connection, AgentVersionStats, _VERSIONS, values)


_DAY_AT = """
SELECT day FROM run_usage WHERE workspace_id = %s AND day >= %s AND day < %s
ORDER BY workspace_id DESC, day DESC, run_id DESC OFFSET %s LIMIT 1
"""
_HIGHEST_FIRST = "cost_usd DESC NULLS LAST, input_tokens + output_tokens DESC, id DESC NULLS LAST"


def _usage_by(column: str, label: str = "NULL", order: str = _HIGHEST_FIRST) -> str:
    # The rows of run_usage, and one for each run without a stored step, on the day of its creation: the first 48 bits
    # of its id are its time in milliseconds. The workspace is part of the order so that only runs_created fits.
    return f"""
WITH used AS (
    SELECT day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
           cost_usd
    FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
    UNION ALL
    SELECT date(to_timestamp(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
                AT TIME ZONE 'UTC'), id, session_id, api_key_id, model, 0, 0, 0, 0, NULL
    FROM (
        SELECT id, session_id, api_key_id, model, steps FROM runs
        WHERE (workspace_id, id) >= (%(workspace)s, %(first_id)s) AND (workspace_id, id) < (%(workspace)s, %(end_id)s)
          AND attempt >= 0
        ORDER BY workspace_id DESC, id DESC LIMIT %(max_rows)s
    ) AS created
    WHERE steps = 0
), sums AS (
    SELECT {column} AS id, count(DISTINCT run_id) AS runs, sum(input_tokens)::bigint AS input_tokens,
           sum(cached_tokens)::bigint AS cached_tokens, sum(cache_write_tokens)::bigint AS cache_write_tokens,
           sum(output_tokens)::bigint AS output_tokens,
           sum(cost_usd)::float8 AS cost_usd
    FROM used GROUP BY {column}
), shown AS (SELECT * FROM sums ORDER BY {order} LIMIT %(count)s)
SELECT id::text AS "group", {label} AS label, runs, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
       cost_usd
FROM shown ORDER BY {order}
"""  # noqa: S608  of constants


_USAGE = {
    UsageGroup.DAY: _usage_by("day", order="id DESC"),
    UsageGroup.SESSION: _usage_by(
        "session_id", "(SELECT title FROM sessions s WHERE s.id = shown.id AND s.workspace_id = %(workspace)s)"
    ),
    UsageGroup.MODEL: _usage_by("model"),
    UsageGroup.API_KEY: _usage_by(
        "api_key_id", "(SELECT label FROM api_keys k WHERE k.id = shown.id AND k.workspace_id = %(workspace)s)"
    ),
}


# Days end at midnight UTC. By ctid: with IN (SELECT …), PostgreSQL may read the whole table to join it.
_DELETE_OLD = """
DELETE FROM run_usage WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM run_usage
    WHERE workspace_id = %s AND day < (now() AT TIME ZONE 'UTC')::date - %s::integer
    ORDER BY workspace_id, day, run_id LIMIT %s
    FOR UPDATE SKIP LOCKED
))
"""
_DELETE_OLD_SUMS = (
    "DELETE FROM daily_usage WHERE workspace_id = %s AND day < (now() AT TIME ZONE 'UTC')::date - %s::integer"
)


async def day_at(connection: Connection, workspace_id: UUID, start: date, end: date, newer: int) -> date | None:
    """The day of the newest row with more than `newer` rows after it. None: there are not so many."""
    return await fetch_value(connection, _DAY_AT, (workspace_id, start, end, newer))


async def usage_items(
    connection: Connection, workspace_id: UUID, group_by: UsageGroup, start: date, end: date, count: int, max_rows: int
) -> list[UsageItem]:
    """From `start` until before `end`. Days newest first, other groups with the highest cost first."""
    first_id, end_id = (first_id_at(datetime.combine(each, time(), UTC)) for each in (start, end))
    days: dict[str, Any] = {"from": start, "to": end, "first_id": first_id, "end_id": end_id}
    values = days | {"workspace": workspace_id, "count": count, "max_rows": max_rows}
    return await fetch_records(connection, UsageItem, _USAGE[group_by], values)


async def delete_old_usage(connection: Connection, workspace_id: UUID, days: int, batch: int) -> int:
    """A batch of the rows of runs, and all sums of the same days."""
    deleted = (await connection.execute(_DELETE_OLD, (workspace_id, days, batch))).rowcount
    await connection.execute(_DELETE_OLD_SUMS, (workspace_id, days))
    return deleted
