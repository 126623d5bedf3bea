"""SQL that sums up usage. Each statement reads one range of the primary key of run_usage.

A run has a row for each day on which it stored a step.
"""

from datetime import date
from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.usage.model import UsageGroup, UsageItem

_DAY_AT = """
SELECT day FROM run_usage WHERE workspace_id = %s AND day >= %s AND day < %s
ORDER BY workspace_id DESC, day DESC, run_id DESC OFFSET %s LIMIT 1
"""
_ITEMS = {
    UsageGroup.DAY: """
SELECT day::text, NULL, count(*), sum(input_tokens)::bigint, sum(cached_tokens)::bigint, sum(output_tokens)::bigint,
       sum(cost_usd)::float8
FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
GROUP BY day ORDER BY day DESC LIMIT %(count)s
""",
    UsageGroup.SESSION: """
SELECT used.session_id::text, s.title, used.runs, used.input_tokens, used.cached_tokens, used.output_tokens,
       used.cost_usd
FROM (
    SELECT session_id, count(DISTINCT run_id) AS runs, sum(input_tokens)::bigint AS input_tokens,
           sum(cached_tokens)::bigint AS cached_tokens, sum(output_tokens)::bigint AS output_tokens,
           sum(cost_usd)::float8 AS cost_usd
    FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
    GROUP BY session_id
    ORDER BY sum(cost_usd) DESC NULLS LAST, sum(input_tokens + output_tokens) DESC, session_id DESC LIMIT %(count)s
) AS used
LEFT JOIN sessions s ON s.id = used.session_id AND s.workspace_id = %(workspace)s
ORDER BY used.cost_usd DESC NULLS LAST, used.input_tokens + used.output_tokens DESC, used.session_id DESC
""",
    UsageGroup.MODEL: """
SELECT model, NULL, count(DISTINCT run_id), sum(input_tokens)::bigint, sum(cached_tokens)::bigint,
       sum(output_tokens)::bigint, sum(cost_usd)::float8
FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
GROUP BY model ORDER BY sum(cost_usd) DESC NULLS LAST, sum(input_tokens + output_tokens) DESC, model LIMIT %(count)s
""",
    UsageGroup.API_KEY: """
SELECT used.api_key_id::text, k.label, used.runs, used.input_tokens, used.cached_tokens, used.output_tokens,
       used.cost_usd
FROM (
    SELECT api_key_id, count(DISTINCT run_id) AS runs, sum(input_tokens)::bigint AS input_tokens,
           sum(cached_tokens)::bigint AS cached_tokens, sum(output_tokens)::bigint AS output_tokens,
           sum(cost_usd)::float8 AS cost_usd
    FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
    GROUP BY api_key_id
    ORDER BY sum(cost_usd) DESC NULLS LAST, sum(input_tokens + output_tokens) DESC, api_key_id DESC LIMIT %(count)s
) AS used
LEFT JOIN api_keys k ON k.id = used.api_key_id AND k.workspace_id = %(workspace)s
ORDER BY used.cost_usd DESC NULLS LAST, used.input_tokens + used.output_tokens DESC, used.api_key_id DESC
""",
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
    row = await (await connection.execute(_DAY_AT, (workspace_id, start, end, newer))).fetchone()
    return None if row is None else row[0]


async def items(
    connection: Connection, workspace_id: UUID, group_by: UsageGroup, start: date, end: date, count: int
) -> list[UsageItem]:
    """From `start` until before `end`. Days newest first, other groups with the highest cost first."""
    values = {"workspace": workspace_id, "from": start, "to": end, "count": count}
    cursor = await connection.execute(_ITEMS[group_by], values)
    return [
        UsageItem(
            group=group,
            label=label,
            runs=runs,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
            cost_usd=cost_usd,
        )
        for group, label, runs, input_tokens, cached_tokens, output_tokens, cost_usd in await cursor.fetchall()
    ]


async def delete_old(connection: Connection, workspace_id: UUID, days: int, batch: int) -> int:
    """A batch of the rows of runs, and all sums of the same days."""
    deleted = (await connection.execute(_DELETE_OLD, (workspace_id, days, batch))).rowcount
    await connection.execute(_DELETE_OLD_SUMS, (workspace_id, days))
    return deleted
