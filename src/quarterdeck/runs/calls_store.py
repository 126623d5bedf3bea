"""SQL for tool calls of a run. Writers hold the lock of the session (`events.log.lock_session`)."""

from uuid import UUID

from quarterdeck.db.database import Connection

# Not progress: a tool that ends its worker each time must not reset barren_attempts.
_HOLD = "UPDATE runs SET updated_at = clock_timestamp() WHERE id = %s AND attempt = %s AND state = 'running'"
_STARTED_CALLS = """
SELECT e.data->>'call_id', max((e.data->>'attempt')::integer) FROM session_events e
WHERE e.session_id = %s AND e.run_id = %s AND e.type = 'tool.started' AND e.id > coalesce((
    SELECT m.id FROM session_events m WHERE m.session_id = %s AND m.type = 'message' ORDER BY m.id DESC LIMIT 1
), 0)
GROUP BY 1
"""
_HAS_RESULT = """
SELECT FROM session_events e
WHERE e.session_id = %s AND e.run_id = %s AND e.type = 'tool.result' AND e.data->>'call_id' = %s AND e.id > coalesce((
    SELECT m.id FROM session_events m WHERE m.session_id = %s AND m.type = 'message' ORDER BY m.id DESC LIMIT 1
), 0)
"""


async def hold(connection: Connection, run_id: UUID, attempt: int) -> bool:
    """Whether this attempt still drives the run."""
    return (await connection.execute(_HOLD, (run_id, attempt))).rowcount == 1


async def started_calls(connection: Connection, session_id: UUID, run_id: UUID) -> dict[str, int]:
    """The calls of the last answer that were started, with the last attempt that did."""
    return dict(await (await connection.execute(_STARTED_CALLS, (session_id, run_id, session_id))).fetchall())


async def has_result(connection: Connection, session_id: UUID, run_id: UUID, call_id: str) -> bool:
    return (await connection.execute(_HAS_RESULT, (session_id, run_id, call_id, session_id))).rowcount > 0
