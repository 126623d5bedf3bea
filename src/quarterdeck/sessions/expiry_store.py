"""SQL that finds and deletes expired parts of sessions. What has expired is decided by the clock of the database."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_bool, fetch_column, fetch_record

# Every log has inputs, and deleting its oldest part removes them from this index. So only the inputs of runs that are
# kept are found again.
_OLD_INPUTS = """
SELECT session_id, created_at, id FROM session_events
WHERE workspace_id = %s AND (created_at, id) > (%s, %s) AND created_at < now() - make_interval(days => %s)
ORDER BY workspace_id, created_at, id LIMIT %s
"""
# Their events may have been deleted long before. The workspace is part of the bounds, so that only its index fits.
# That index is partial on `attempt >= 0`, which holds for all runs: see schema/09_runs.sql.
_OLD_RUNS = """
SELECT session_id, id FROM runs
WHERE (workspace_id, id) > (%s, %s) AND (workspace_id, id) < (%s, lowest_id_at(now() - make_interval(days => %s)))
  AND attempt >= 0
ORDER BY workspace_id, id LIMIT %s
"""
_OLD_FORKS = """
SELECT CASE WHEN EXISTS (SELECT FROM session_events e WHERE e.session_id = f.id) THEN f.id END, f.id
FROM (
    SELECT s.id FROM sessions s
    WHERE (s.workspace_id, s.id) > (%s, %s)
      AND (s.workspace_id, s.id) < (%s, lowest_id_at(now() - make_interval(days => %s)))
      AND s.forked_from_session_id IS NOT NULL
    ORDER BY s.workspace_id, s.id LIMIT %s
) AS f
"""
_EXPIRE = """
SELECT events, runs, sessions_done
FROM expire_logs(%s, now() - make_interval(days => %s), now() - make_interval(days => %s::integer), %s, %s)
"""
# The recursive part skips from session to session on the index.
_WITH_FILES = """
WITH RECURSIVE found AS (
    (SELECT session_id FROM session_files WHERE session_id > %(after)s ORDER BY session_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT f.session_id FROM session_files f WHERE f.session_id > found.session_id ORDER BY f.session_id LIMIT 1
    )
    FROM found WHERE found.session_id < lowest_id_at(now() - make_interval(days => %(shortest)s))
)
SELECT session_id FROM found
WHERE session_id < lowest_id_at(now() - make_interval(days => %(shortest)s)) LIMIT %(count)s
"""
# A retention of NULL keeps the files.
_IDLE = """
SELECT s.id
FROM sessions s JOIN workspaces w ON w.id = s.workspace_id
CROSS JOIN LATERAL (
    SELECT now() - make_interval(days => coalesce((w.retention->>'file_days')::integer, %s::integer)) AS moment
) AS cutoff
WHERE s.id = ANY (%s::uuid[]) AND s.id < lowest_id_at(cutoff.moment) AND NOT EXISTS (
    SELECT FROM runs r WHERE r.session_id = s.id AND NOT has_ended_before(r, cutoff.moment)
)
"""
_LOCK = "SELECT lock_to_expire(%s)"


class Expired(Struct, frozen=True):
    events: int
    runs: int
    # From the first on.
    sessions_done: int


async def with_old_inputs(
    connection: Connection, workspace_id: UUID, after: tuple[datetime, int], days: int, count: int
) -> list[tuple[UUID, tuple[datetime, int]]]:
    """Sessions with the times and ids of their inputs, oldest first. A session may be there several times."""
    rows = await (await connection.execute(_OLD_INPUTS, (workspace_id, *after, days, count))).fetchall()
    return [(session_id, (created_at, event_id)) for session_id, created_at, event_id in rows]


async def with_old_runs(
    connection: Connection, workspace_id: UUID, after: UUID, days: int, count: int
) -> list[tuple[UUID, UUID]]:
    """Sessions with the ids of their runs, oldest first. A session may be there several times."""
    values = (workspace_id, after, workspace_id, days, count)
    return await (await connection.execute(_OLD_RUNS, values)).fetchall()


async def old_forks(
    connection: Connection, workspace_id: UUID, after: UUID, days: int, count: int
) -> list[tuple[UUID | None, UUID]]:
    """Forks, oldest first, with their ids. None in place of a fork without events."""
    values = (workspace_id, after, workspace_id, days, count)
    return await (await connection.execute(_OLD_FORKS, values)).fetchall()


async def expire(
    connection: Connection,
    session_ids: Sequence[UUID],
    event_days: int,
    run_days: int | None,
    max_rows: int,
    max_seconds: float,
) -> Expired:
    values = (list(session_ids), event_days, run_days, max_rows, max_seconds)
    expired = await fetch_record(connection, Expired, _EXPIRE, values)
    assert expired is not None
    return expired


async def with_files(connection: Connection, after: UUID, shortest_days: int, count: int) -> list[UUID]:
    """Sessions that have files, oldest first."""
    values = {"after": after, "shortest": shortest_days, "count": count}
    return await fetch_column(connection, _WITH_FILES, values)


async def idle(connection: Connection, session_ids: Sequence[UUID], days: int | None) -> list[UUID]:
    """Those in which no run was active for the retention of their workspace, or `days`."""
    return await fetch_column(connection, _IDLE, (days, list(session_ids)))


async def lock(connection: Connection, session_id: UUID) -> bool:
    """False: somebody uses the session, or it was deleted."""
    return await fetch_bool(connection, _LOCK, (session_id,))
