"""The rows of runs. Callers hold the lock of the session (`events.log.lock_session`).

Every write of a worker carries its `attempt`: a worker that was replaced can no longer write.
"""

from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.conversations.runs.model import Entry, Input
from quarterdeck.db.database import Connection

_FIND = "SELECT session_id, workspace_id FROM runs WHERE id = %s"
_ACTIVE = """
SELECT state, attempt, barren_attempts, steps, input_tokens + output_tokens
FROM runs WHERE id = %s AND state IN ('queued', 'running')
"""
_ACTIVE_OF = "SELECT id FROM runs WHERE session_id = %s AND state IN ('queued', 'running')"
# The age of the run is computed by the database, since the clocks of workers differ.
_START = """
UPDATE runs
SET state = 'running', parked = false, attempt = attempt + 1, barren_attempts = barren_attempts + %s,
    started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
WHERE id = %s
RETURNING attempt, extract(epoch FROM clock_timestamp() - started_at)::float8
"""
_INPUTS = """
SELECT e.data->>'input_id', e.data->>'text'
FROM runs r JOIN session_events e ON e.session_id = r.session_id
WHERE r.id = %s AND e.id > r.consumed_through AND e.id <= r.last_input AND e.type = 'input.accepted'
ORDER BY e.id
"""
_TAKE = """
UPDATE runs
SET consumed_through = last_input, inputs_consumed = inputs_consumed + %s, updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_STEP = """
UPDATE runs
SET barren_attempts = 0, steps = steps + %s, input_tokens = input_tokens + %s, output_tokens = output_tokens + %s,
    updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
# Besides the session's lock: an input that was accepted since the last take keeps the run active.
_SUCCEED = """
UPDATE runs SET state = 'succeeded', finished_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running' AND consumed_through = last_input
"""
_FAIL = """
UPDATE runs SET state = 'failed', failure = %s, finished_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state IN ('queued', 'running')
RETURNING last_input, consumed_through
"""
_CANCEL = """
UPDATE runs
SET state = 'cancelled', parked = false, finished_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = %s AND state IN ('queued', 'running')
"""
_GIVE_BACK = """
UPDATE runs SET state = 'queued', barren_attempts = greatest(barren_attempts - 1, 0), updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_CONTINUE_IN = """
INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through, inputs_accepted)
SELECT %s, session_id, workspace_id, 'queued', last_input, consumed_through, inputs_accepted - inputs_consumed
FROM runs WHERE id = %s
"""
# Newest first, so that the limit leaves out the oldest.
_JOURNAL = """
SELECT run_id, type, data, record FROM session_events
WHERE session_id = %s
  AND type IN ('input.accepted', 'input.consumed', 'message', 'tool.call', 'tool.result')
ORDER BY id DESC LIMIT %s
"""
_ENQUEUE = "SELECT enqueue_run(%s, %s)"
_ENQUEUE_AFTER = "SELECT enqueue_run_after(%s, %s, %s)"
_LOCK_WORKSPACE_LIMIT = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 3))"
_RUNNING = "SELECT count(*) FROM runs WHERE workspace_id = %s AND state = 'running'"
_PARK = "UPDATE runs SET parked = true WHERE id = %s AND state = 'queued'"
_UNPARK = """
UPDATE runs SET parked = false
WHERE parked AND id = (SELECT id FROM runs WHERE workspace_id = %s AND parked ORDER BY id LIMIT 1)
RETURNING session_id, id
"""
_ABORT_JOBS = """
SELECT jobs.procrastinate_cancel_job_v1(id, true, true)
FROM jobs.procrastinate_jobs WHERE queueing_lock = %s AND status IN ('todo', 'doing')
"""


class ActiveRun(Struct, frozen=True):
    state: str
    attempt: int
    barren_attempts: int
    steps: int
    tokens: int


async def find(connection: Connection, run_id: UUID) -> tuple[UUID, UUID] | None:
    """The session and the workspace of the run."""
    row = await (await connection.execute(_FIND, (run_id,))).fetchone()
    return None if row is None else (row[0], row[1])


async def active(connection: Connection, run_id: UUID) -> ActiveRun | None:
    row = await (await connection.execute(_ACTIVE, (run_id,))).fetchone()
    return None if row is None else ActiveRun(*row)


async def active_of(connection: Connection, session_id: UUID) -> UUID | None:
    row = await (await connection.execute(_ACTIVE_OF, (session_id,))).fetchone()
    return None if row is None else row[0]


async def start_attempt(connection: Connection, run_id: UUID, barren: int) -> tuple[int, float]:
    """The number of the attempt, and the age of the run in seconds."""
    row = await (await connection.execute(_START, (barren, run_id))).fetchone()
    assert row is not None
    return row[0], row[1]


async def unconsumed(connection: Connection, run_id: UUID) -> list[Input]:
    rows = await (await connection.execute(_INPUTS, (run_id,))).fetchall()
    return [Input(*row) for row in rows]


async def mark_taken(connection: Connection, run_id: UUID, attempt: int, count: int) -> bool:
    return (await connection.execute(_TAKE, (count, run_id, attempt))).rowcount == 1


async def count_step(
    connection: Connection, run_id: UUID, attempt: int, steps: int, input_tokens: int, output_tokens: int
) -> bool:
    values = (steps, input_tokens, output_tokens, run_id, attempt)
    return (await connection.execute(_STEP, values)).rowcount == 1


async def succeed(connection: Connection, run_id: UUID, attempt: int) -> bool:
    return (await connection.execute(_SUCCEED, (run_id, attempt))).rowcount == 1


async def fail(connection: Connection, run_id: UUID, attempt: int, reason: str) -> tuple[int, int] | None:
    """The columns last_input and consumed_through, or None if this attempt has lost the run."""
    row = await (await connection.execute(_FAIL, (reason, run_id, attempt))).fetchone()
    return None if row is None else (row[0], row[1])


async def cancel(connection: Connection, run_id: UUID) -> bool:
    return (await connection.execute(_CANCEL, (run_id,))).rowcount == 1


async def give_back(connection: Connection, run_id: UUID, attempt: int) -> bool:
    return (await connection.execute(_GIVE_BACK, (run_id, attempt))).rowcount == 1


async def continue_in(connection: Connection, run_id: UUID, next_run_id: UUID) -> None:
    """Adds a run with the inputs that the old one has not consumed."""
    await connection.execute(_CONTINUE_IN, (next_run_id, run_id))


async def journal(connection: Connection, session_id: UUID, count: int) -> list[Entry]:
    """The newest `count` entries of the conversation, oldest first."""
    rows = await (await connection.execute(_JOURNAL, (session_id, count))).fetchall()
    return [Entry(*row) for row in reversed(rows)]


async def enqueue(connection: Connection, session_id: UUID, run_id: UUID) -> None:
    await connection.execute(_ENQUEUE, (session_id, run_id))


async def enqueue_after(connection: Connection, session_id: UUID, run_id: UUID, pause_seconds: float) -> None:
    await connection.execute(_ENQUEUE_AFTER, (session_id, run_id, pause_seconds))


async def lock_workspace_limit(connection: Connection, workspace_id: UUID) -> None:
    """Serialises decisions about how many runs of a workspace are active. Always taken after the session's lock: its
    holder never waits for a session."""
    await connection.execute(_LOCK_WORKSPACE_LIMIT, (workspace_id,))


async def running(connection: Connection, workspace_id: UUID) -> int:
    row = await (await connection.execute(_RUNNING, (workspace_id,))).fetchone()
    assert row is not None
    count: int = row[0]
    return count


async def park(connection: Connection, run_id: UUID) -> None:
    await connection.execute(_PARK, (run_id,))


async def unpark_next(connection: Connection, workspace_id: UUID) -> None:
    row: tuple[Any, ...] | None = await (await connection.execute(_UNPARK, (workspace_id,))).fetchone()
    if row is not None:
        await enqueue(connection, row[0], row[1])


async def abort_jobs(connection: Connection, run_id: UUID) -> None:
    await connection.execute(_ABORT_JOBS, (str(run_id),))
