"""SQL for forks. The content of events stays inside the database."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.sessions.model import LogEntry

_HAS_EVENT = "SELECT FROM session_events WHERE session_id = %s AND id = %s"
# One statement, so one snapshot: events become visible in the order of their ids, and the states of runs fit to them.
# The sizes are those of stored values, which are not read. LIKE: only then the index session_events_of_input is used.
# LIMIT 1 instead of EXISTS: PostgreSQL would read the discarded inputs of all sessions into a hash table.
_ENTRIES = """
SELECT e.id, e.run_id, e.type,
       CASE WHEN e.type IN ('input.consumed', 'input.discarded') THEN coalesce(e.input_event_id, (
           SELECT a.id FROM session_events a
           WHERE a.session_id = e.session_id AND a.data->>'input_id' = e.data->>'input_id'
             AND a.type LIKE 'input.%%' AND a.type = 'input.accepted'
       )) END,
       pg_column_size(e.data) + coalesce(pg_column_size(e.record), 0),
       coalesce(r.state NOT IN ('succeeded', 'failed', 'cancelled'), false), coalesce(r.unanswered_left_out, false),
       e.type = 'input.consumed' AND (
           SELECT d.id FROM session_events d
           WHERE d.session_id = e.session_id AND d.data->>'input_id' = e.data->>'input_id'
             AND d.type LIKE 'input.%%' AND d.type = 'input.discarded' LIMIT 1
       ) IS NOT NULL
FROM session_events e LEFT JOIN runs r ON r.id = e.run_id
WHERE e.session_id = %s AND e.id < %s AND e.type <> 'session.forked'
ORDER BY e.id LIMIT %s
"""
_LAST_ANSWERS = """
SELECT e.run_id, max(e.id) FROM session_events e
WHERE e.session_id = %s AND e.type = 'message' AND e.run_id = ANY (%s::uuid[]) GROUP BY e.run_id
"""
_NEW_IDS = "SELECT nextval('session_event_ids') FROM generate_series(1, %s)"
# A title that quotes an input expires with the beginning of the log.
_MARK_TITLE = """
UPDATE sessions f SET title_event_id = (SELECT min(e.id) FROM session_events e WHERE e.session_id = f.id)
FROM sessions o WHERE f.id = %s AND o.id = %s AND o.title_event_id IS NOT NULL
"""
# For the rest of the transaction the trigger adds no words for the search: see add_conversation_words().
_ADD_NO_WORDS = "SELECT set_config('app.copies_events', 'on', true)"
# Inputs have no workspace_id, since they would be counted a second time. next_run_id may name a run that is not copied.
# What the model does not see is marked in `record`: see read_conversation().
_COPY = """
INSERT INTO session_events (id, session_id, run_id, type, created_at, data, record, input_event_id)
SELECT c.new_id, %s, c.new_run_id, e.type, e.created_at,
       CASE e.type WHEN 'run.failed' THEN e.data - 'next_run_id' ELSE e.data END,
       CASE WHEN c.hidden THEN '{"left_out": true}'::jsonb ELSE e.record END, c.new_accepted_id
FROM unnest(%s::bigint[], %s::bigint[], %s::uuid[], %s::bigint[], %s::boolean[])
    AS c (old_id, new_id, new_run_id, new_accepted_id, hidden)
JOIN session_events e ON e.session_id = %s AND e.id = c.old_id AND e.id BETWEEN %s AND %s
ORDER BY c.old_id
"""


async def has_event(connection: Connection, session_id: UUID, event_id: int) -> bool:
    return (await connection.execute(_HAS_EVENT, (session_id, event_id))).rowcount == 1


async def entries(connection: Connection, session_id: UUID, before_id: int, count: int) -> list[LogEntry]:
    """The oldest `count` events before this one, without their content."""
    rows = await (await connection.execute(_ENTRIES, (session_id, before_id, count))).fetchall()
    return [LogEntry(*row) for row in rows]


async def mark_title(connection: Connection, origin_id: UUID, fork_id: UUID) -> None:
    await connection.execute(_MARK_TITLE, (fork_id, origin_id))


async def last_answers(connection: Connection, session_id: UUID, run_ids: Sequence[UUID]) -> dict[UUID, int]:
    return dict(await (await connection.execute(_LAST_ANSWERS, (session_id, list(run_ids)))).fetchall())


async def new_event_ids(connection: Connection, count: int) -> list[int]:
    rows = await (await connection.execute(_NEW_IDS, (count,))).fetchall()
    return [event_id for (event_id,) in rows]


async def add_no_words(connection: Connection) -> None:
    await connection.execute(_ADD_NO_WORDS)


async def copy_events(
    connection: Connection,
    origin_id: UUID,
    fork_id: UUID,
    batch: Sequence[LogEntry],
    run_ids: Sequence[UUID | None],
    new_ids: Mapping[int, int],
    hidden: set[int],
) -> None:
    """`run_ids`: of the copies. `new_ids`: of all copied events, by their ids in the origin."""
    values = (
        [one.id for one in batch],
        [new_ids[one.id] for one in batch],
        list(run_ids),
        [None if one.accepted_id is None else new_ids[one.accepted_id] for one in batch],
        [one.id in hidden for one in batch],
    )
    await connection.execute(_COPY, (fork_id, *values, origin_id, batch[0].id, batch[-1].id))
