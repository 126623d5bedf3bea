"""The rows of runs. Callers hold the lock of the session (`events.log.lock_session`), unless a function takes it.

Every write of a worker carries its `attempt`: a worker that was replaced can no longer write.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg.types.json import Json, Jsonb

from quarterdeck.connections.mcp.model import PinnedTools
from quarterdeck.core.settings import RunSettings
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_bool, fetch_column, fetch_record, fetch_records, fetch_value
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.model import Step
from quarterdeck.runs.action_model import ActionState, ReachedLimit
from quarterdeck.runs.model import ENTRY_BYTES, Entry, Input, Priority, RunSetup, Superseded

_DISCARD_BATCH = 500

_FIND = """
SELECT r.session_id, r.workspace_id, r.setup, r.model, r.priority, s.agent_id IS NOT NULL AS follows_agent, s.revision
FROM runs r JOIN sessions s ON s.id = r.session_id WHERE r.id = %s AND r.state IN ('queued', 'running')
"""
_TRACEPARENT = "SELECT traceparent FROM runs WHERE id = %s"
# See db/functions/attempts.sql.
_BEGIN = """
SELECT *, CASE WHEN limit_scope IS NOT NULL THEN json_build_object(
    'scope', limit_scope, 'limit', limit_name, 'maximum', limit_maximum, 'used', limit_used
) END AS reached
FROM begin_attempt(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_ACTIVE_OF = "SELECT id FROM runs WHERE session_id = %s AND state IN ('queued', 'running', 'waiting')"
_UNFINISHED_OF = """
SELECT id FROM runs WHERE session_id = %s AND state IN ('queued', 'running', 'waiting')
UNION ALL
SELECT id FROM runs WHERE session_id = %s AND state = 'pending'
"""
_START_PENDING = "SELECT start_pending_run(%s)"
_WAITING = """
SELECT event_id, input_id AS id, content AS text, coalesce(attachments, '[]') AS attachments, copy_of
FROM waiting_inputs(%s, %s, %s)
"""
# NULL in place of an event's id: no input is left.
_TAKE = """
UPDATE runs
SET consumed_through = coalesce(%s::bigint, last_input), inputs_consumed = inputs_consumed + %s,
    unconsumed_bytes = CASE WHEN %s::bigint < last_input THEN greatest(unconsumed_bytes - %s, 0) ELSE 0 END,
    updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_CONSUME = """
INSERT INTO session_events (session_id, run_id, type, data, input_event_id)
SELECT %s, %s, 'input.consumed', jsonb_build_object('input_id', taken.input_id, 'step', %s::integer), taken.event_id
FROM unnest(%s::text[], %s::bigint[]) AS taken (input_id, event_id) ORDER BY taken.event_id
"""
# Returns the ids of the inputs only: their texts may be large. Other runs may own inputs in the same range. Withdrawn
# inputs are discarded already. LIMIT 1 instead of EXISTS: one look into the index for each input, whatever else the
# session has.
_DISCARD = """
WITH waiting AS (
    SELECT e.id, e.data->>'input_id' AS input_id FROM session_events e
    WHERE e.session_id = %s AND e.id > %s AND e.id <= %s AND e.type = 'input.accepted'
      AND e.run_id = ANY (SELECT unnest(takes_over || id) FROM runs WHERE id = %s)
      AND (
          SELECT d.id FROM session_events d
          WHERE d.session_id = e.session_id AND d.data->>'input_id' = e.data->>'input_id'
            AND d.type LIKE 'input.%%' AND d.type = 'input.discarded' LIMIT 1
      ) IS NULL
    ORDER BY e.id LIMIT %s
), discarded AS (
    INSERT INTO session_events (session_id, run_id, type, data)
    SELECT %s, %s, 'input.discarded', jsonb_build_object('input_id', input_id, 'reason', %s::text)
    FROM waiting ORDER BY id
)
SELECT id, input_id FROM waiting ORDER BY id
"""
# The first limit of the run that is reached. Reads a few rows by their keys if there is no limit.
_REACHED_LIMIT = """
SELECT json_build_object('scope', scope, 'limit', limit_name, 'maximum', maximum, 'used', used) AS reached, stopped
FROM reached_limit(%s)
"""
_PROGRESS = """
UPDATE runs SET barren_attempts = 0, updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_STEP = "SELECT record_step(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_WAIT = """
UPDATE runs
SET state = 'waiting', waiting_since = clock_timestamp(), barren_attempts = 0, updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_FINISH = "SELECT finish_run(%s, %s, %s, %s, true)"
_FAIL = """
UPDATE runs
SET state = 'failed', failure = %s, setup = NULL, mcp_tools = NULL, finished_at = clock_timestamp(),
    updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = %s
RETURNING last_input, consumed_through
"""
# The events `e` of a session since its last answer.
_SINCE_ANSWER = """e.session_id = %(session)s AND e.id > coalesce((
    SELECT m.id FROM session_events m WHERE m.session_id = %(session)s AND m.type = 'message' ORDER BY m.id DESC LIMIT 1
), 0)"""
# The run, and those that were cancelled or failed since the last answer of the session: the refused request contained
# their inputs and results too.
_LEAVE_OUT_REFUSED = f"""
UPDATE runs SET unanswered_left_out = true
WHERE id = %(run)s OR id IN (
    SELECT e.run_id FROM session_events e WHERE {_SINCE_ANSWER} AND e.type IN ('input.consumed', 'tool.result')
)
"""  # noqa: S608  built from constants
_CANCEL = """
UPDATE runs
SET state = 'cancelled', parked = false, waits_for_models = NULL, waits_for_batch_since = NULL, waiting_since = NULL,
    setup = NULL, mcp_tools = NULL, finished_at = clock_timestamp(),
    waited_seconds = waited_seconds + greatest(
        extract(epoch FROM clock_timestamp() - coalesce(waiting_since, waits_for_batch_since))::float8, 0
    ),
    updated_at = clock_timestamp()
WHERE id = %s AND state IN ('pending', 'queued', 'running', 'waiting')
RETURNING last_input, consumed_through
"""
_GIVE_BACK = """
UPDATE runs SET state = 'queued', waits_for_models = %s, barren_attempts = greatest(barren_attempts - 1, 0),
    updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
_SWITCH_MODEL = """
UPDATE runs SET model = %s, updated_at = clock_timestamp() WHERE id = %s AND attempt = %s AND state = 'running'
"""
_WAIT_FOR_BATCH = """
UPDATE runs SET state = 'queued', waits_for_batch_since = clock_timestamp(),
    barren_attempts = greatest(barren_attempts - 1, 0), updated_at = clock_timestamp()
WHERE id = %s AND attempt = %s AND state = 'running'
"""
# Names only those runs whose inputs still wait, so that the list does not grow with each failure.
_CONTINUE_IN = """
SELECT add_run(
    %s, r.session_id, r.workspace_id, 'queued', r.consumed_through + 1, r.last_input,
    r.inputs_accepted - r.inputs_consumed, r.unconsumed_bytes, r.api_key_id, r.traceparent,
    takes_over => ARRAY(
        SELECT DISTINCT e.run_id FROM session_events e
        WHERE e.session_id = r.session_id AND e.id > r.consumed_through AND e.id <= r.last_input
          AND e.type = 'input.accepted' AND e.run_id = ANY (r.takes_over || r.id)
    ),
    priority => r.priority
)
FROM runs r WHERE r.id = %s
"""
_ENQUEUE = "SELECT enqueue_run(%s, %s)"
_ENQUEUE_AFTER = "SELECT enqueue_run_after(%s, %s, %s)"
_UNPARK = "SELECT unpark_next_run(%s)"
_CANCEL_JOBS = "SELECT cancel_run_jobs(%s)"


class RunKey(Struct, frozen=True):
    """A run as one attempt writes to it."""

    run_id: UUID
    session_id: UUID
    workspace_id: UUID
    attempt: int

    @property
    def columns(self) -> tuple[UUID, UUID, UUID, int]:
        return self.run_id, self.session_id, self.workspace_id, self.attempt


class FoundRun(Struct, frozen=True):
    session_id: UUID
    workspace_id: UUID
    # None: no attempt has begun.
    setup: RunSetup | None
    # The one that it asked last.
    model: str | None
    priority: Priority
    follows_agent: bool
    # The revision of the session.
    revision: int


class BeginVerdict(StrEnum):
    BEGUN = "begun"
    BARREN = "barren"
    OVERDUE = "overdue"
    CHANGED = "changed"


class BegunRun(Struct, frozen=True):
    """The columns of begin_attempt()."""

    verdict: BeginVerdict
    # Before.
    state: str
    attempt: int
    barren_attempts: int
    steps: int
    tokens: int
    seconds: float
    input_bytes: int | None
    reached: ReachedLimit | None
    limit_stopped: ActionState | None


class StoppingLimit(Struct, frozen=True):
    """The first limit of a run that is reached."""

    reached: ReachedLimit
    # The state of the action that ends the run. None: the run may wait for a higher limit.
    stopped: ActionState | None


async def find(connection: Connection, run_id: UUID) -> FoundRun | None:
    """None: it is not active, or it waits."""
    return await fetch_record(connection, FoundRun, _FIND, (run_id,))


async def traceparent(connection: Connection, run_id: UUID) -> str | None:
    return await fetch_value(connection, _TRACEPARENT, (run_id,))


async def begin(
    connection: Connection,
    run_id: UUID,
    settings: RunSettings,
    started: dict[str, Any],
    new_setup: RunSetup | None,
    session_revision: int,
    counted: bool,
) -> BegunRun | None:
    """Takes the lock of the session itself. `started`: what the log says about the start, but for the attempt.
    `new_setup`: None if the run has one; otherwise it was made from this revision of the session. `counted`: whether
    the attempt counts as barren until it stores a step."""
    agent = None if new_setup is None else new_setup.agent
    values = (
        run_id,
        int(counted),
        settings.barren_attempts,
        settings.max_seconds,
        settings.active_per_workspace,
        settings.step_input_bytes,
        ENTRY_BYTES,
        Jsonb(started),
        None if new_setup is None else Jsonb(msgspec.to_builtins(new_setup)),
        None if agent is None else agent.agent_id,
        None if agent is None else agent.version,
        session_revision,
    )
    return await fetch_record(connection, BegunRun, _BEGIN, values)


async def active_of(connection: Connection, session_id: UUID) -> UUID | None:
    return await fetch_value(connection, _ACTIVE_OF, (session_id,))


async def unfinished_of(connection: Connection, session_id: UUID) -> list[UUID]:
    """The active run and the pending ones."""
    return await fetch_column(connection, _UNFINISHED_OF, (session_id, session_id))


async def start_pending(connection: Connection, session_id: UUID) -> None:
    """Starts the oldest pending run if no run is active."""
    await connection.execute(_START_PENDING, (session_id,))


async def waiting(connection: Connection, run_id: UUID, budget_bytes: int) -> list[Input]:
    """The oldest inputs that are not consumed, up to the one that uses up the budget."""
    values = (run_id, budget_bytes, ENTRY_BYTES)
    return await fetch_records(connection, Input, _WAITING, values)


async def mark_taken(connection: Connection, run: RunKey, inputs: Sequence[Input], *, more: bool) -> None:
    """`more`: other inputs may wait behind these."""
    through = inputs[-1].event_id if more else None
    await _write(connection, run, _TAKE, through, len(inputs), through, sum(one.text_bytes for one in inputs))


async def _write(connection: Connection, run: RunKey, query: str, *values: object) -> None:
    """Raises Superseded unless this attempt drives the run."""
    if (await connection.execute(query, (*values, run.run_id, run.attempt))).rowcount == 0:
        raise Superseded


async def log_consumed(
    connection: Connection, session_id: UUID, run_id: UUID, step: int, inputs: Sequence[Input]
) -> None:
    values = (session_id, run_id, step, [one.id for one in inputs], [one.event_id for one in inputs])
    await connection.execute(_CONSUME, values)


async def discard_waiting(
    connection: Connection, session_id: UUID, run_id: UUID, ends: tuple[int, int], reason: str
) -> list[UUID]:
    """Logs the inputs that the run has not consumed as discarded and returns their ids. `ends`: see `cancel`.

    In batches: even if each input has the maximum size, a statement stays below its timeout."""
    last_input, after = ends
    found: list[UUID] = []
    while True:
        values = (session_id, after, last_input, run_id, _DISCARD_BATCH, session_id, run_id, reason)
        rows = await (await connection.execute(_DISCARD, values)).fetchall()
        found += [UUID(input_id) for _, input_id in rows]
        if len(rows) < _DISCARD_BATCH:
            return found
        after = rows[-1][0]


async def reached_limit(connection: Connection, run_id: UUID) -> StoppingLimit | None:
    return await fetch_record(connection, StoppingLimit, _REACHED_LIMIT, (run_id,))


async def count_progress(connection: Connection, run: RunKey) -> None:
    await _write(connection, run, _PROGRESS)


class Recorded(StrEnum):
    RECORDED = "recorded"
    FINISHED = "finished"


async def record_step(
    connection: Connection, run: RunKey, model: str, step: Step, events: Sequence[NewEvent], finish: bool
) -> Recorded | None:
    """Takes the lock of the session itself. Adds a step to the run and to the usage of the day. `finish`: ends the run
    too, if it can. None: this attempt has lost the run."""
    used = (step.input_tokens, step.cached_tokens, step.cache_write_tokens, step.output_tokens, step.cost_usd)
    values = (*run.columns, model, *used, Jsonb([_stored(event) for event in events]), finish)
    recorded = await fetch_value(connection, _STEP, values)
    return None if recorded is None else Recorded(recorded)


def _stored(event: NewEvent) -> dict[str, Any]:
    stored = {"type": event.type, "data": event.data}
    return stored if event.record is None else stored | {"record": event.record}


async def finish(connection: Connection, run: RunKey) -> bool:
    """False: an input is not consumed, or this attempt has lost the run."""
    return await fetch_value(connection, _FINISH, run.columns) is not None


async def wait(connection: Connection, run: RunKey) -> None:
    await _write(connection, run, _WAIT)


async def fail(connection: Connection, run: RunKey, state: str, reason: str) -> tuple[int, int]:
    """The columns last_input and consumed_through. Raises Superseded."""
    row = await (await connection.execute(_FAIL, (reason, run.run_id, run.attempt, state))).fetchone()
    if row is None:
        raise Superseded
    return row[0], row[1]


async def leave_out_refused(connection: Connection, session_id: UUID, run_id: UUID) -> None:
    """The model no longer sees what was consumed since the last answer, of which the provider refused some part."""
    await connection.execute(_LEAVE_OUT_REFUSED, {"run": run_id, "session": session_id})


async def cancel(connection: Connection, run_id: UUID) -> tuple[int, int] | None:
    """The columns last_input and consumed_through, or None if the run has ended before."""
    row = await (await connection.execute(_CANCEL, (run_id,))).fetchone()
    return None if row is None else (row[0], row[1])


async def give_back(connection: Connection, run: RunKey, waits_for_models: list[str] | None) -> None:
    await _write(connection, run, _GIVE_BACK, waits_for_models)


async def wait_for_batch(connection: Connection, run: RunKey) -> None:
    await _write(connection, run, _WAIT_FOR_BATCH)


async def continue_in(connection: Connection, run_id: UUID, next_run_id: UUID) -> None:
    """Adds a run with the inputs that the old one has not consumed."""
    await connection.execute(_CONTINUE_IN, (next_run_id, run_id))


async def enqueue(connection: Connection, session_id: UUID, run_id: UUID) -> None:
    await connection.execute(_ENQUEUE, (session_id, run_id))


async def enqueue_after(connection: Connection, session_id: UUID, run_id: UUID, pause_seconds: float) -> None:
    await connection.execute(_ENQUEUE_AFTER, (session_id, run_id, pause_seconds))


async def unpark_next(connection: Connection, workspace_id: UUID) -> None:
    await connection.execute(_UNPARK, (workspace_id,))


async def cancel_jobs(connection: Connection, run_id: UUID) -> None:
    await connection.execute(_CANCEL_JOBS, (run_id,))


# Not progress: a tool that ends its worker each time must not reset barren_attempts.
_HOLD = "UPDATE runs SET updated_at = clock_timestamp() WHERE id = %s AND attempt = %s AND state = 'running'"
_STARTED_CALLS = f"""
SELECT e.data->>'call_id', max((e.data->>'attempt')::integer) FROM session_events e
WHERE {_SINCE_ANSWER} AND e.run_id = %(run)s AND e.type = 'tool.started' GROUP BY 1
"""  # noqa: S608  built from constants
_HAS_RESULT = f"""
SELECT EXISTS (
    SELECT FROM session_events e
    WHERE {_SINCE_ANSWER} AND e.run_id = %(run)s AND e.type = 'tool.result' AND e.data->>'call_id' = %(call)s
)
"""  # noqa: S608  built from constants


async def switch_model(connection: Connection, run: RunKey, model: str) -> None:
    await _write(connection, run, _SWITCH_MODEL, model)


async def hold(connection: Connection, run: RunKey) -> None:
    """Checks that this attempt still drives the run."""
    await _write(connection, run, _HOLD)


async def started_calls(connection: Connection, session_id: UUID, run_id: UUID) -> dict[str, int]:
    """The calls of the last answer that were started, with the last attempt that did."""
    values = {"session": session_id, "run": run_id}
    return dict(await (await connection.execute(_STARTED_CALLS, values)).fetchall())


async def has_result(connection: Connection, session_id: UUID, run_id: UUID, call_id: str) -> bool:
    return await fetch_bool(connection, _HAS_RESULT, {"session": session_id, "run": run_id, "call": call_id})


# Reads the part of a session's log that its model gets: db/functions/conversation.sql.

# Far more than the turns that fit into a context. It bounds the time to read a log that holds other events only.
_CONVERSATION_EVENTS = 50_000
# The type of a last row with the number of turns that the model shall not see: see read_conversation().
_LEFT_OUT = "left_out"
# Every row has the number of all turns. If there is no entry, it is the only column that is not NULL.
_CONVERSATION = """
SELECT turns.count, entry.run_id, entry.type, entry.data, entry.record, entry.content
FROM (
    SELECT count(*) FROM (
        SELECT type FROM session_events WHERE session_id = %s ORDER BY id DESC LIMIT %s
    ) AS newest
    WHERE type IN ('input.consumed', 'message', 'tool.result')
) AS turns
LEFT JOIN read_conversation(%s, %s, %s, %s) AS entry ON true
"""
_TURN_TYPES = (EventType.INPUT_CONSUMED, EventType.MESSAGE, EventType.TOOL_RESULT)


async def conversation(connection: Connection, session_id: UUID, budget_bytes: int) -> tuple[list[Entry], int]:
    """The newest entries, oldest first, until the budget is used up, and the number of older turns. Neither has turns
    that the model shall not see, nor those that a summary stands for."""
    values = (session_id, _CONVERSATION_EVENTS, session_id, budget_bytes, ENTRY_BYTES, _CONVERSATION_EVENTS)
    rows = await (await connection.execute(_CONVERSATION, values)).fetchall()
    turns = rows[0][0]
    entries = [Entry(*row) for _, *row in reversed(rows) if row[1] is not None]
    hidden = entries.pop(0).data if entries and entries[0].type == _LEFT_OUT else 0
    summary = next((entry for entry in entries if entry.type == EventType.CONTEXT_COMPACTED), None)
    if summary is not None and summary.text is None:
        return entries, 0
    summarised = 0 if summary is None else summary.data["dropped_turns"]
    return entries, max(0, turns - summarised - hidden - sum(entry.type in _TURN_TYPES for entry in entries))


_MCP_TOOLS = "SELECT mcp_tools FROM runs WHERE id = %s"
# Not progress, as for other calls: a server that ends its worker each time must not reset barren_attempts.
_SET_MCP_TOOLS = """
UPDATE runs SET mcp_tools = %s, updated_at = clock_timestamp() WHERE id = %s AND attempt = %s AND state = 'running'
"""


async def mcp_tools(connection: Connection, run_id: UUID) -> PinnedTools | None:
    return msgspec.convert(await fetch_value(connection, _MCP_TOOLS, (run_id,)), PinnedTools | None)


async def set_mcp_tools(connection: Connection, run: RunKey, tools: PinnedTools) -> None:
    await _write(connection, run, _SET_MCP_TOOLS, Json(msgspec.to_builtins(tools)))
