"""The call that submits inputs, and runs as the API shows them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.core.actors import Caller, Credential
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.db.records import (
    Records,
    fetch_bool,
    fetch_column,
    fetch_int,
    fetch_record,
    fetch_records,
    fetch_value,
)
from quarterdeck.runs.model import (
    AttachmentRequest,
    BatchModels,
    InputEvent,
    Priority,
    RunBody,
    RunState,
    Submission,
    Submitted,
    Verdict,
)

_SUBMIT = """
SELECT verdict, body, used_id
FROM submit_inputs(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b::jsonb[], %b, %b::jsonb[])
"""
_RUNS = Records(
    RunBody,
    table="runs",
    scope="session_id",
    get_scope="workspace_id",
    columns="""r.id, r.session_id, r.state, r.model, r.priority, r.attempt AS attempts, r.steps, r.inputs_accepted,
        r.inputs_consumed, r.waits_for_models[1] AS waits_for_model, r.waits_for_batch_since, r.answered_by, r.failure,
        r.started_at, r.finished_at,
        CASE WHEN r.agent_id IS NOT NULL
             THEN json_build_object('agent_id', r.agent_id, 'version', r.agent_version) END AS agent,
        json_build_object('input_tokens', r.input_tokens, 'cached_tokens', r.cached_tokens,
                          'cache_write_tokens', r.cache_write_tokens,
                          'output_tokens', r.output_tokens, 'cost_usd', r.cost_usd) AS usage,
        CASE WHEN r.state = 'waiting'
             THEN ARRAY(SELECT a.id FROM actions a WHERE a.run_id = r.id AND a.state = 'open' ORDER BY a.id)
             ELSE '{}' END AS waiting_for,
        r.waited_seconds + greatest(extract(epoch FROM clock_timestamp()
                - coalesce(r.waiting_since, r.waits_for_batch_since))::float8, 0) AS waited_seconds""",
)
get, page = _RUNS.get, _RUNS.page


async def submit(
    connection: Connection, batch: Sequence[Submission], *, settings: SubmitSettings, wait_for_locks: bool
) -> list[Submitted]:
    """One verdict for each submission, in their order, all in one transaction."""
    cursor = await connection.execute(
        _SUBMIT,
        (
            [item.credential.secret_hash for item in batch],
            [item.session_id for item in batch],
            [item.workspace_id for item in batch],
            [item.text for item in batch],
            [new_id() for _ in batch],
            [new_id() for _ in batch],
            [item.idempotency_key for item in batch],
            [item.fingerprint for item in batch],
            wait_for_locks,
            settings.run_waiting_inputs,
            settings.run_waiting_bytes,
            _structs([item.attachments for item in batch]),
            _traceparents(batch),
            _structs([item.batch_models for item in batch]),
        ),
        prepare=True,
        binary=True,
    )
    return [Submitted(Verdict(verdict), body, used_id) for verdict, body, used_id in await cursor.fetchall()]


def _structs(items: Sequence[Struct | None]) -> list[Jsonb | None] | None:
    """None: all are None."""
    if not any(items):
        return None
    return [None if item is None else Jsonb(msgspec.to_builtins(item)) for item in items]


def _traceparents(batch: Sequence[Submission]) -> list[str | None] | None:
    found = [item.traceparent for item in batch]
    return found if any(found) else None


_PENDING = "SELECT count(*) FROM runs WHERE session_id = %s AND state = 'pending'"
_ADD = """
WITH accepted AS (
    INSERT INTO session_events (session_id, run_id, workspace_id, type, data)
    VALUES (%(session_id)s, %(id)s, %(workspace_id)s, 'input.accepted', %(data)s)
    RETURNING id, octet_length(data->>'text') AS bytes
)
SELECT add_run(%(id)s, %(session_id)s, %(workspace_id)s, %(state)s, id, id, 1, bytes, %(api_key_id)s, %(traceparent)s,
               priority => %(priority)s)
FROM accepted
"""
_REPEAT = "SELECT repeat_inputs(%s, %s, %s, %s, %s, %s, %s)"
# The run, those that it is a retry of, and earlier retries of these.
_SHOW_RETRIED = """
WITH RECURSIVE retries AS (
    SELECT r.id, r.retried_from FROM runs r WHERE r.session_id = %s AND r.retried_from IS NOT NULL
), related AS (
    SELECT %s::uuid AS id
    UNION
    SELECT CASE o.id WHEN r.retried_from THEN r.id ELSE r.retried_from END
    FROM related o JOIN retries r ON o.id IN (r.id, r.retried_from)
)
UPDATE runs SET unanswered_left_out = false FROM related WHERE runs.id = related.id
"""
_FIND_ATTACHMENTS = "SELECT refusal, detail, attachments FROM find_attachments(%s, %s, %s)"
_MODEL_WITHOUT_BATCHES = "SELECT model_without_batches(%s, %s)"
_STORE_ATTACHMENTS = "SELECT store_attachments(%s, %s)"
_FIND_SUBMITTER = "SELECT refusal, is_archived, files_of FROM find_submitter(%s, %s, %s)"


class NewRun(Struct, frozen=True):
    id: UUID
    session_id: UUID
    workspace_id: UUID
    state: RunState
    # None: the caller was no API key.
    api_key_id: UUID | None
    # The span of the request. None: it is not traced.
    traceparent: str | None = None
    priority: Priority = Priority.NORMAL


class Submitter(Struct, frozen=True):
    """Whether a caller may submit inputs to a session: db/functions/submit_inputs.sql."""

    refusal: Verdict | None
    is_archived: bool
    files_of: UUID | None


async def find_submitter(
    connection: Connection, credential: Credential, session_id: UUID, workspace_id: UUID | None
) -> Submitter:
    """`workspace_id`: the Service-Workspace header."""
    values = (credential.secret_hash, session_id, workspace_id)
    found = await fetch_record(connection, Submitter, _FIND_SUBMITTER, values)
    assert found is not None
    return found


async def model_without_batches(connection: Connection, session_id: UUID, batch_models: BatchModels) -> str | None:
    """The model of the session's next run, if it cannot be asked by batches."""
    values = (session_id, Jsonb(msgspec.to_builtins(batch_models)))
    return await fetch_value(connection, _MODEL_WITHOUT_BATCHES, values)


async def pending(connection: Connection, session_id: UUID) -> int:
    return await fetch_int(connection, _PENDING, (session_id,))


async def find_attachments(
    connection: Connection, session_id: UUID, files_of: UUID | None, request: AttachmentRequest
) -> tuple[str | None, Any, list[dict[str, Any]]]:
    """The refusal with its details, and the attachments: db/functions/attachments.sql."""
    values = (session_id, files_of, Jsonb(msgspec.to_builtins(request)))
    row = await (await connection.execute(_FIND_ATTACHMENTS, values)).fetchone()
    assert row is not None
    return row


async def add(
    connection: Connection,
    run: NewRun,
    input_id: UUID,
    event: InputEvent,
    actor: Caller,
    attached: list[dict[str, Any]] | None = None,
) -> None:
    """Adds a run with its first input and the attachments of it that were found."""
    data: dict[str, Any] = {"input_id": input_id, "text": event.text, "delivery": event.delivery, "actor": actor}
    data |= {} if event.priority is Priority.NORMAL else {"priority": event.priority}
    data |= {} if attached is None else {"attachments": attached}
    await connection.execute(_ADD, msgspec.structs.asdict(run) | {"data": Jsonb(msgspec.to_builtins(data))})
    if attached is not None:
        await connection.execute(_STORE_ATTACHMENTS, (run.session_id, Jsonb(attached)))


async def repeat_inputs(
    connection: Connection,
    run_id: UUID,
    new_run_id: UUID,
    new_input_ids: Sequence[UUID],
    max_bytes: int,
    actor: Caller,
    api_key_id: UUID | None,
    traceparent: str | None = None,
) -> str | None:
    """None, or why no run was added: db/functions/deliveries.sql."""
    stored = Jsonb(msgspec.to_builtins(actor))
    values = (run_id, new_run_id, list(new_input_ids), max_bytes, stored, api_key_id, traceparent)
    return await fetch_value(connection, _REPEAT, values)


async def show_retried(connection: Connection, session_id: UUID, run_id: UUID) -> None:
    """Before the run is retried: the model sees what the provider refused, because a person wants to try it again."""
    await connection.execute(_SHOW_RETRIED, (session_id, run_id))


# LIKE: only then the index session_events_of_input is used.
_EVENTS = """
SELECT type, id, run_id, coalesce(octet_length(data->>'text'), 0) AS text_bytes FROM session_events
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


class StoredInputEvent(Struct, frozen=True):
    type: str
    id: int
    run_id: UUID
    text_bytes: int


async def events_of(connection: Connection, session_id: UUID, input_id: UUID) -> list[StoredInputEvent]:
    return await fetch_records(connection, StoredInputEvent, _EVENTS, (session_id, str(input_id)))


async def repeated_by(connection: Connection, session_id: UUID, accepted_id: int) -> list[UUID]:
    """The ids of the inputs that this one repeats. Empty unless it was made by a retry."""
    found = await fetch_column(connection, _REPEATED_BY, {"session": session_id, "event": accepted_id})
    return list(map(UUID, found))


async def waits_in(connection: Connection, session_id: UUID, accepted: StoredInputEvent) -> UUID | None:
    """The run that is to consume the input."""
    values = (session_id, accepted.run_id, accepted.id, accepted.id, accepted.run_id)
    return await fetch_value(connection, _WAITS_IN, values)


async def withdraw(connection: Connection, run_id: UUID, text_bytes: int) -> bool:
    """After an input was logged as discarded. True if the run has consumed nothing and has nothing to consume."""
    return await fetch_bool(connection, _WITHDRAW, (text_bytes, _ALL_BYTES, run_id))


async def end_of_run(connection: Connection, session_id: UUID, consumed: StoredInputEvent) -> str | None:
    """The type of the event that ended the run, as the log has it: the runs of a fork are only in its log."""
    return await fetch_value(connection, _END_OF_RUN, (session_id, consumed.id, consumed.run_id))


async def forget_words(connection: Connection, session_id: UUID, accepted: StoredInputEvent) -> None:
    """The search no longer finds the input."""
    await connection.execute(_FORGET_WORDS, (session_id, accepted.id))


# Compares the jobs of the queue with their runs.

_PRUNE = """
DELETE FROM workers
WHERE id IN (
    SELECT id FROM workers
    WHERE last_heartbeat < now() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED
)
"""
# A new row with a new id: a paused worker that wakes up and finishes its job does not affect the new one.
_REPLACE_LOST = """
WITH lost AS (
    DELETE FROM run_jobs
    WHERE id IN (SELECT id FROM run_jobs WHERE taken AND worker_id IS NULL FOR UPDATE SKIP LOCKED)
    RETURNING run_id, session_id, workspace_id
)
INSERT INTO run_jobs (run_id, session_id, workspace_id) SELECT run_id, session_id, workspace_id FROM lost
ON CONFLICT (run_id) WHERE NOT taken DO NOTHING
"""
# Left by a worker that ended its run, or made it wait, but could not finish the job, which would hold the lock of the
# session for ever. A queued run has two jobs if it waited or was handed back and the first job is left over. A job in
# the queue holds nothing: for an ended or waiting run it ends with the next worker that fetches it.
_DELETE_SPENT = """
DELETE FROM run_jobs
WHERE id IN (
    SELECT j.id FROM run_jobs j JOIN runs r ON r.id = j.run_id
    WHERE j.taken AND (
        least(r.finished_at, r.waiting_since) < now() - interval '10 seconds'
        OR (r.state = 'queued' AND r.updated_at < now() - interval '10 seconds' AND EXISTS (
            SELECT FROM run_jobs t WHERE t.run_id = j.run_id AND NOT t.taken
        ))
    )
    FOR UPDATE OF j SKIP LOCKED
)
"""
_ADD_MISSING = """
SELECT enqueue_run(r.session_id, r.id) FROM runs r
WHERE r.state IN ('queued', 'running') AND NOT r.parked AND r.waits_for_models IS NULL
  AND r.waits_for_batch_since IS NULL AND NOT EXISTS (
    SELECT FROM run_jobs j WHERE j.run_id = r.id
)
"""
_START_PARKED = """
WITH waiting AS (
    SELECT id, session_id, workspace_id, row_number() OVER (PARTITION BY workspace_id ORDER BY id) AS number
    FROM runs WHERE parked
), chosen AS (
    SELECT w.id, w.session_id FROM waiting w
    WHERE w.number <= coalesce(%s, 1000000000) - (
        SELECT count(*) FROM runs r WHERE r.workspace_id = w.workspace_id AND r.state = 'running'
    )
), freed AS (
    UPDATE runs r SET parked = false FROM chosen c WHERE r.id = c.id AND r.parked RETURNING r.session_id, r.id
)
SELECT enqueue_run(session_id, id) FROM freed
"""


async def replace_lost_jobs(connection: Connection, lease_seconds: float) -> None:
    """Those of workers that have sent no heartbeat for so long."""
    await connection.execute(_PRUNE, (lease_seconds,))
    await connection.execute(_REPLACE_LOST)


async def compare_jobs(connection: Connection, active_per_workspace: int | None) -> None:
    """Deletes jobs that nothing needs, and adds those that are missing."""
    await connection.execute(_DELETE_SPENT)
    await connection.execute(_ADD_MISSING)
    await connection.execute(_START_PARKED, (active_per_workspace,))


# Runs that shall leave their slots. The decision is made by the database: db/functions/turns.sql.

_ASK_TO_LEAVE = "SELECT ask_runs_to_leave()"
_LEAVING = "SELECT run_id FROM run_jobs WHERE taken AND leaving"


async def leaving(connection: Connection, ask: bool) -> list[UUID]:
    """`ask`: first asks further runs to leave, if other workspaces wait."""
    if ask:
        await connection.execute(_ASK_TO_LEAVE)
    return await fetch_column(connection, _LEAVING)
