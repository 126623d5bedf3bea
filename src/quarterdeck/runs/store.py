"""The one call that submits inputs, and runs as they are shown."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from quarterdeck.access.model import CredentialKind
from quarterdeck.db.binary_arrays import Of, binary_array
from quarterdeck.db.database import Connection
from quarterdeck.db.prepared_call import PreparedCall
from quarterdeck.ids import created_at, new_ids
from quarterdeck.pages import bounds
from quarterdeck.runs.model import RunBody, RunState, Submission, Submitted, Usage, Verdict

_SUBMIT = "SELECT verdict, body, api_key_id FROM submit_inputs($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_submit = PreparedCall("submit_inputs", _SUBMIT)
_VERDICTS: dict[bytes | None, Verdict] = {verdict.value.encode(): verdict for verdict in Verdict}
_FALSE, _TRUE = b"\0", b"\1"
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
    ids = new_ids(2 * len(batch))
    result = await _submit(
        connection,
        [
            binary_array(Of.BYTEA, [item.credential.secret_hash for item in batch]),
            binary_array(Of.BOOLEAN, [_is_token(item) for item in batch]),
            binary_array(Of.UUID, [item.session_id.bytes for item in batch]),
            binary_array(Of.UUID, [None if item.workspace_id is None else item.workspace_id.bytes for item in batch]),
            binary_array(Of.TEXT, [item.text for item in batch]),
            # Of the input, and of the run if it starts one.
            binary_array(Of.UUID, ids[::2]),
            binary_array(Of.UUID, ids[1::2]),
            binary_array(Of.TEXT, [item.idempotency_key for item in batch]),
            binary_array(Of.BYTEA, [item.fingerprint for item in batch]),
        ],
    )
    value = result.get_value
    return [Submitted(_VERDICTS[value(row, 0)], value(row, 1), _key_id(value(row, 2))) for row in range(result.ntuples)]


def _is_token(item: Submission) -> bytes | None:
    """None: it is a key, and has to be looked at before it gets to the locks."""
    if item.credential.kind is CredentialKind.SESSION_TOKEN:
        return _TRUE
    return _FALSE if item.is_known else None


# Few keys send most of the inputs, and reading an id takes as long as all the rest of a row.
@lru_cache(maxsize=1024)
def _key_id(written: bytes | None) -> UUID | None:
    return None if written is None else UUID(bytes=written)


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
