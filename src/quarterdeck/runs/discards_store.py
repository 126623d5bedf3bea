"""SQL for inputs that are discarded by their id. Callers hold the lock of the session."""

from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection

# LIKE: only then the index session_events_of_input is used.
_EVENTS = """
SELECT type, id, run_id, coalesce(octet_length(data->>'text'), 0) FROM session_events
WHERE session_id = %s AND data->>'input_id' = %s AND type LIKE 'input.%%' ORDER BY id
"""
# The run that accepted the input, or the active one if that run has failed and passed the input on.
_WAITS_IN = """
SELECT id FROM runs
WHERE session_id = %s AND state NOT IN ('succeeded', 'failed', 'cancelled')
  AND (id = %s OR state IN ('queued', 'running', 'waiting')) AND consumed_through < %s AND last_input >= %s
ORDER BY id = %s DESC LIMIT 1
"""
# last_input is the last input that waits, or else consumed_through: then the run can succeed.
_WITHDRAW = """
UPDATE runs r
SET inputs_accepted = r.inputs_accepted - 1, unconsumed_bytes = greatest(r.unconsumed_bytes - %s, 0),
    last_input = coalesce((SELECT max(w.event_id) FROM waiting_inputs(r.id, %s, 0) w), r.consumed_through),
    updated_at = clock_timestamp()
WHERE r.id = %s
RETURNING r.consumed_through = r.last_input AND r.inputs_consumed = 0
"""
_END_OF_RUN = """
SELECT type FROM session_events
WHERE session_id = %s AND id > %s AND run_id = %s AND type IN ('run.succeeded', 'run.failed', 'run.cancelled')
ORDER BY id LIMIT 1
"""
# A run had read the input, so the search found it.
_FORGET_WORDS = "DELETE FROM conversation_words WHERE session_id = %s AND event_id = %s"
# The input that a copy repeats, and earlier copies of it. Those in a fork have no runs: there only the former is found.
_REPEATED_BY = """
WITH copy AS (SELECT data->>'copy_of' AS copy_of FROM session_events WHERE session_id = %(session)s AND id = %(event)s)
SELECT copy_of FROM copy WHERE copy_of IS NOT NULL
UNION ALL
SELECT e.data->>'input_id' FROM copy
JOIN runs r ON r.session_id = %(session)s AND r.retried_from IS NOT NULL AND copy.copy_of IS NOT NULL
JOIN session_events e ON e.session_id = r.session_id AND e.id BETWEEN r.first_input AND r.last_input
    AND e.run_id = r.id AND e.id < %(event)s AND e.type = 'input.accepted' AND e.data->>'copy_of' = copy.copy_of
"""
_ALL_BYTES = 2**63 - 1


class InputEvent(Struct, frozen=True):
    """An event of one input."""

    type: str
    id: int
    run_id: UUID
    text_bytes: int


async def events_of(connection: Connection, session_id: UUID, input_id: UUID) -> list[InputEvent]:
    rows = await (await connection.execute(_EVENTS, (session_id, str(input_id)))).fetchall()
    return [InputEvent(*row) for row in rows]


async def repeated_by(connection: Connection, session_id: UUID, accepted_id: int) -> list[UUID]:
    """The ids of the inputs that this one repeats. Empty unless it was made by a retry."""
    rows = await (await connection.execute(_REPEATED_BY, {"session": session_id, "event": accepted_id})).fetchall()
    return [UUID(input_id) for (input_id,) in rows]


async def waits_in(connection: Connection, session_id: UUID, accepted: InputEvent) -> UUID | None:
    """The run that is to consume the input."""
    values = (session_id, accepted.run_id, accepted.id, accepted.id, accepted.run_id)
    row = await (await connection.execute(_WAITS_IN, values)).fetchone()
    return None if row is None else row[0]


async def withdraw(connection: Connection, run_id: UUID, text_bytes: int) -> bool:
    """After an input was logged as discarded. True if the run has consumed nothing and has nothing to consume."""
    row = await (await connection.execute(_WITHDRAW, (text_bytes, _ALL_BYTES, run_id))).fetchone()
    assert row is not None
    return bool(row[0])


async def end_of_run(connection: Connection, session_id: UUID, consumed: InputEvent) -> str | None:
    """The type of the event that ended the run, as the log has it: the runs of a fork are only in its log."""
    row = await (await connection.execute(_END_OF_RUN, (session_id, consumed.id, consumed.run_id))).fetchone()
    return None if row is None else row[0]


async def forget_words(connection: Connection, session_id: UUID, accepted: InputEvent) -> None:
    """The search no longer finds the input."""
    await connection.execute(_FORGET_WORDS, (session_id, accepted.id))
