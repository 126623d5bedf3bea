"""The one call that submits inputs, and runs as they are shown."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from quarterdeck.access.model import CredentialKind
from quarterdeck.db.arrays import boolean_array, bytea_array, text_array, uuid_array
from quarterdeck.db.database import Connection
from quarterdeck.ids import created_at
from quarterdeck.pages import bounds
from quarterdeck.runs.model import Caller, RunBody, RunState, Submission, Submitted, Usage, Verdict

_SUBMIT = """
SELECT verdict, body, api_key_id::text FROM submit_inputs(
    %s::bytea[], %s::boolean[], %s::uuid[], %s::uuid[], %s::text[], %s::uuid[], %s::uuid[], %s::text[], %s::bytea[])
"""
# The checks of submit_inputs() for those who come with a key, without its locks: nobody waits for a session here.
_ADMITTED = """
SELECT caller.place - 1
FROM unnest(%s::bytea[], %s::uuid[], %s::uuid[]) WITH ORDINALITY
    AS caller (secret_hash, session_id, workspace_id, place)
JOIN api_keys k ON k.secret_hash = caller.secret_hash
JOIN sessions s ON s.id = caller.session_id AND s.workspace_id = k.workspace_id
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND 'session.manage' = ANY (k.permissions) AND s.workspace_id = coalesce(caller.workspace_id, s.workspace_id)
"""
_VERDICTS = {verdict.value: verdict for verdict in Verdict}
_GET = """
SELECT id, session_id, state, attempt, steps, inputs_accepted, inputs_consumed, input_tokens, output_tokens, failure,
       started_at, finished_at
FROM runs WHERE workspace_id = %s AND id = %s
"""
_NEWEST_FIRST = """
SELECT id, session_id, state, attempt, steps, inputs_accepted, inputs_consumed, input_tokens, output_tokens, failure,
       started_at, finished_at
FROM runs WHERE (session_id, id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY session_id DESC, id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT id, session_id, state, attempt, steps, inputs_accepted, inputs_consumed, input_tokens, output_tokens, failure,
       started_at, finished_at
FROM runs WHERE (session_id, id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY session_id, id LIMIT %s
"""


async def submit(connection: Connection, batch: Sequence[Submission]) -> list[Submitted]:
    """One verdict for each submission, in their order, all in one transaction."""
    cursor = await connection.execute(
        _SUBMIT,
        (
            bytea_array(item.credential.secret_hash for item in batch),
            boolean_array(item.credential.kind is CredentialKind.SESSION_TOKEN for item in batch),
            uuid_array(item.session_id for item in batch),
            uuid_array(item.workspace_id for item in batch),
            text_array(item.text for item in batch),
            uuid_array(item.input_id for item in batch),
            uuid_array(item.fresh_run_id for item in batch),
            text_array(item.idempotency_key for item in batch),
            bytea_array(item.fingerprint for item in batch),
        ),
        prepare=True,
    )
    rows = await cursor.fetchall()
    # Most of a batch came with the same key, and reading its id takes as long as all the rest of a row.
    key_ids = {key_id: None if key_id is None else UUID(key_id) for _, _, key_id in rows}
    return [Submitted(_VERDICTS[verdict], body, key_ids[key_id]) for verdict, body, key_id in rows]


async def admitted(connection: Connection, callers: Sequence[Caller]) -> set[int]:
    """The places of those who see their session and may write to it."""
    cursor = await connection.execute(
        _ADMITTED,
        (
            bytea_array(caller.secret_hash for caller in callers),
            uuid_array(caller.session_id for caller in callers),
            uuid_array(caller.workspace_id for caller in callers),
        ),
        prepare=True,
    )
    return {place for (place,) in await cursor.fetchall()}


async def get(connection: Connection, workspace_id: UUID, run_id: UUID) -> RunBody | None:
    row = await (await connection.execute(_GET, (workspace_id, run_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, session_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[RunBody]:
    """`count` runs from `start` on, itself included."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    rows = await (await connection.execute(query, (session_id, lowest, session_id, highest, count))).fetchall()
    return [_body(row) for row in rows]


def _body(row: tuple[Any, ...]) -> RunBody:
    run_id, session_id, state, attempts, steps, accepted, consumed, tokens_in, tokens_out, failure, start, end = row
    return RunBody(
        id=run_id,
        session_id=session_id,
        state=RunState(state),
        attempts=attempts,
        steps=steps,
        inputs_accepted=accepted,
        inputs_consumed=consumed,
        usage=Usage(tokens_in, tokens_out),
        failure=failure,
        created_at=created_at(run_id),
        started_at=start,
        finished_at=end,
    )
