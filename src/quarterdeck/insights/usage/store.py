"""SQL that sums up usage. Each statement reads one range of the primary key of run_usage and one of the runs.

A run has a row for each day on which it stored a step.
"""

from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from quarterdeck.core.ids import first_id_at
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_records, fetch_value
from quarterdeck.insights.usage.model import UsageGroup, UsageItem

_DAY_AT = """
SELECT day FROM run_usage WHERE workspace_id = %s AND day >= %s AND day < %s
ORDER BY workspace_id DESC, day DESC, run_id DESC OFFSET %s LIMIT 1
"""
_HIGHEST_FIRST = "cost_usd DESC NULLS LAST, input_tokens + output_tokens DESC, id DESC NULLS LAST"


def _by(column: str, label: str = "NULL", order: str = _HIGHEST_FIRST) -> str:
    # The rows of run_usage, and one for each run without a stored step, on the day of its creation: the first 48 bits
    # of its id are its time in milliseconds. The workspace is part of the order so that only runs_created fits.
    return f"""
WITH used AS (
    SELECT day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens, output_tokens, cost_usd
    FROM run_usage WHERE workspace_id = %(workspace)s AND day >= %(from)s AND day < %(to)s
    UNION ALL
    SELECT date(to_timestamp(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
                AT TIME ZONE 'UTC'), id, session_id, api_key_id, model, 0, 0, 0, NULL
    FROM (
        SELECT id, session_id, api_key_id, model, steps FROM runs
        WHERE (workspace_id, id) >= (%(workspace)s, %(first_id)s) AND (workspace_id, id) < (%(workspace)s, %(end_id)s)
          AND attempt >= 0
        ORDER BY workspace_id DESC, id DESC LIMIT %(max_rows)s
    ) AS created
    WHERE steps = 0
), sums AS (
    SELECT {column} AS id, count(DISTINCT run_id) AS runs, sum(input_tokens)::bigint AS input_tokens,
           sum(cached_tokens)::bigint AS cached_tokens, sum(output_tokens)::bigint AS output_tokens,
           sum(cost_usd)::float8 AS cost_usd
    FROM used GROUP BY {column}
), shown AS (SELECT * FROM sums ORDER BY {order} LIMIT %(count)s)
SELECT id::text AS "group", {label} AS label, runs, input_tokens, cached_tokens, output_tokens, cost_usd
FROM shown ORDER BY {order}
"""  # noqa: S608  of constants


_ITEMS = {
    UsageGroup.DAY: _by("day", order="id DESC"),
    UsageGroup.SESSION: _by(
        "session_id", "(SELECT title FROM sessions s WHERE s.id = shown.id AND s.workspace_id = %(workspace)s)"
    ),
    UsageGroup.MODEL: _by("model"),
    UsageGroup.API_KEY: _by(
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


async def items(
    connection: Connection, workspace_id: UUID, group_by: UsageGroup, start: date, end: date, count: int, max_rows: int
) -> list[UsageItem]:
    """From `start` until before `end`. Days newest first, other groups with the highest cost first."""
    first_id, end_id = (first_id_at(datetime.combine(each, time(), UTC)) for each in (start, end))
    values: dict[str, Any] = {
        "workspace": workspace_id,
        "from": start,
        "to": end,
        "first_id": first_id,
        "end_id": end_id,
    }
    values |= {"count": count, "max_rows": max_rows}
    return await fetch_records(connection, UsageItem, _ITEMS[group_by], values)


async def delete_old(connection: Connection, workspace_id: UUID, days: int, batch: int) -> int:
    """A batch of the rows of runs, and all sums of the same days."""
    deleted = (await connection.execute(_DELETE_OLD, (workspace_id, days, batch))).rowcount
    await connection.execute(_DELETE_OLD_SUMS, (workspace_id, days))
    return deleted
