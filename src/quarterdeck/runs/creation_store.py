"""SQL that adds runs. Callers hold the lock of the session."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.core.actors import Caller
from quarterdeck.db.database import Connection
from quarterdeck.runs.model import AttachmentRequest, Delivery, RunState

_PENDING = "SELECT count(*) FROM runs WHERE session_id = %s AND state = 'pending'"
# consumed_through lies just before the input, as in submit_inputs().
_ADD = """
WITH given (run_id, session_id, workspace_id, state, api_key_id, traceparent, input_id, content, delivery, actor,
            more) AS (
    VALUES (%s::uuid, %s::uuid, %s::uuid, %s::text, %s::uuid, %s::text, %s::uuid, %s::text, %s::text, %s::jsonb,
            %s::jsonb)
), accepted AS (
    INSERT INTO session_events (session_id, run_id, workspace_id, type, data)
    SELECT session_id, run_id, workspace_id, 'input.accepted',
           jsonb_build_object('input_id', input_id, 'text', content, 'delivery', delivery, 'actor', actor) || more
    FROM given
    RETURNING id
)
INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through, unconsumed_bytes, first_input,
                  takes_over, api_key_id, traceparent)
SELECT g.run_id, g.session_id, g.workspace_id, g.state, a.id, a.id - 1, octet_length(g.content), a.id, '{}',
       g.api_key_id, g.traceparent
FROM given g CROSS JOIN accepted a
"""
_REPEAT = "SELECT repeat_inputs(%s, %s, %s, %s, %s, %s, %s)"
# The run, those that it is a retry of, and earlier retries of these. Retries of earlier releases do not name the inputs
# that they repeat: they stay left out, otherwise the model would see the same inputs twice.
_SHOW_RETRIED = """
WITH RECURSIVE retries AS (
    SELECT r.id, r.retried_from, EXISTS (
        SELECT FROM session_events e
        WHERE e.session_id = r.session_id AND e.id = r.first_input AND e.data->>'copy_of' IS NOT NULL
    ) AS is_shown
    FROM runs r WHERE r.session_id = %s AND r.retried_from IS NOT NULL
), related AS (
    SELECT %s::uuid AS id, true AS is_shown
    UNION
    SELECT CASE o.id WHEN r.retried_from THEN r.id ELSE r.retried_from END, o.is_shown AND r.is_shown
    FROM related o JOIN retries r ON o.id = r.retried_from OR (o.id = r.id AND o.is_shown AND r.is_shown)
)
UPDATE runs SET unanswered_left_out = NOT related.is_shown FROM related WHERE runs.id = related.id
"""
_FIND_ATTACHMENTS = "SELECT refusal, detail, attachments FROM find_attachments(%s, %s, %s)"
_STORE_ATTACHMENTS = "SELECT store_attachments(%s, %s)"
_IS_ARCHIVED = "SELECT archived_at IS NOT NULL FROM sessions WHERE id = %s"


class NewRun(Struct, frozen=True):
    id: UUID
    session_id: UUID
    workspace_id: UUID
    state: RunState
    api_key_id: UUID
    # The span of the request. None: it is not traced.
    traceparent: str | None = None


async def is_archived(connection: Connection, session_id: UUID) -> bool | None:
    """None if there is no such session."""
    row = await (await connection.execute(_IS_ARCHIVED, (session_id,))).fetchone()
    return None if row is None else row[0]


async def pending(connection: Connection, session_id: UUID) -> int:
    row = await (await connection.execute(_PENDING, (session_id,))).fetchone()
    assert row is not None
    count: int = row[0]
    return count


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
    text: str,
    delivery: Delivery,
    actor: Caller,
    attached: list[dict[str, Any]] | None = None,
) -> None:
    """Adds a run with its first input and the attachments of it that were found."""
    more = Jsonb({} if attached is None else {"attachments": attached})
    await connection.execute(_ADD, (*msgspec.structs.astuple(run), input_id, text, delivery, _stored(actor), more))
    if attached is not None:
        await connection.execute(_STORE_ATTACHMENTS, (run.session_id, Jsonb(attached)))


async def repeat_inputs(
    connection: Connection,
    run_id: UUID,
    new_run_id: UUID,
    new_input_ids: Sequence[UUID],
    max_bytes: int,
    actor: Caller,
    api_key_id: UUID,
    traceparent: str | None = None,
) -> str | None:
    """None, or why no run was added: db/functions/deliveries.sql."""
    values = (run_id, new_run_id, list(new_input_ids), max_bytes, _stored(actor), api_key_id, traceparent)
    row = await (await connection.execute(_REPEAT, values)).fetchone()
    assert row is not None
    reason: str | None = row[0]
    return reason


async def show_retried(connection: Connection, session_id: UUID, run_id: UUID) -> None:
    """Before the run is retried: the model sees what the provider refused, because a person wants to try it again."""
    await connection.execute(_SHOW_RETRIED, (session_id, run_id))


def _stored(actor: Caller) -> Jsonb:
    return Jsonb(msgspec.to_builtins(actor))
