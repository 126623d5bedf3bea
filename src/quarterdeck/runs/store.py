"""The call that submits inputs, and runs as the API shows them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.core.ids import created_at, new_id
from quarterdeck.core.pages import bounds
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.runs.model import RunBody, RunState, Submission, Submitted, Usage, UsedAgent, Verdict

_SUBMIT = """
SELECT verdict, body, api_key_id FROM submit_inputs(%b, NULL, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b::jsonb[], %b)
"""
_GET = """
SELECT id, session_id, state, model, agent_id, agent_version, attempt, steps, inputs_accepted, inputs_consumed,
       input_tokens, cached_tokens, output_tokens, cost_usd, failure, started_at, finished_at,
       CASE WHEN state = 'waiting'
            THEN ARRAY(SELECT a.id FROM actions a WHERE a.run_id = runs.id AND a.state = 'open' ORDER BY a.id)
            ELSE '{}' END,
       waited_seconds + greatest(extract(epoch FROM clock_timestamp() - waiting_since)::float8, 0)
FROM runs WHERE workspace_id = %s AND id = %s
"""
_NEWEST_FIRST = """
SELECT id, session_id, state, model, agent_id, agent_version, attempt, steps, inputs_accepted, inputs_consumed,
       input_tokens, cached_tokens, output_tokens, cost_usd, failure, started_at, finished_at,
       CASE WHEN state = 'waiting'
            THEN ARRAY(SELECT a.id FROM actions a WHERE a.run_id = runs.id AND a.state = 'open' ORDER BY a.id)
            ELSE '{}' END,
       waited_seconds + greatest(extract(epoch FROM clock_timestamp() - waiting_since)::float8, 0)
FROM runs WHERE (session_id, id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY session_id DESC, id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT id, session_id, state, model, agent_id, agent_version, attempt, steps, inputs_accepted, inputs_consumed,
       input_tokens, cached_tokens, output_tokens, cost_usd, failure, started_at, finished_at,
       CASE WHEN state = 'waiting'
            THEN ARRAY(SELECT a.id FROM actions a WHERE a.run_id = runs.id AND a.state = 'open' ORDER BY a.id)
            ELSE '{}' END,
       waited_seconds + greatest(extract(epoch FROM clock_timestamp() - waiting_since)::float8, 0)
FROM runs WHERE (session_id, id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY session_id, id LIMIT %s
"""


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
            _requests(batch),
            _traceparents(batch),
        ),
        prepare=True,
        binary=True,
    )
    return [Submitted(Verdict(verdict), body, api_key_id) for verdict, body, api_key_id in await cursor.fetchall()]


def _requests(batch: Sequence[Submission]) -> list[Jsonb | None] | None:
    if all(item.attachments is None for item in batch):
        return None
    return [None if item.attachments is None else Jsonb(msgspec.to_builtins(item.attachments)) for item in batch]


def _traceparents(batch: Sequence[Submission]) -> list[str | None] | None:
    found = [item.traceparent for item in batch]
    return found if any(found) else None


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
    run_id, session_id, state, model, agent_id, agent_version, attempts, steps, accepted, consumed = row[:10]
    tokens_in, tokens_cached, tokens_out, cost_usd, failure, start, end, waiting_for, waited = row[10:]
    return RunBody(
        id=run_id,
        session_id=session_id,
        state=RunState(state),
        model=model,
        agent=None if agent_id is None else UsedAgent(agent_id, agent_version),
        attempts=attempts,
        steps=steps,
        inputs_accepted=accepted,
        inputs_consumed=consumed,
        usage=Usage(tokens_in, tokens_cached, tokens_out, None if cost_usd is None else float(cost_usd)),
        waiting_for=waiting_for,
        waited_seconds=waited,
        failure=failure,
        created_at=created_at(run_id),
        started_at=start,
        finished_at=end,
    )
