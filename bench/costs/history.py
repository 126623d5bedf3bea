"""Rows that make a request expensive, written by SQL: the service would need minutes, or refuse some of them."""

import base64
import random
from uuid import UUID

from bench.server import Server

MIB = 1024 * 1024

_RUN = """
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through,
                  inputs_accepted, inputs_consumed, steps, started_at, finished_at)
SELECT gen_random_uuid(), %s, %s, 'succeeded', 1, last, last, last, %s, %s, 1, now(), now()
FROM (SELECT last_value AS last FROM session_event_ids) AS ids RETURNING id
"""
_INPUTS = """
WITH accepted AS (
    INSERT INTO session_events (session_id, run_id, workspace_id, type, data)
    SELECT %s, %s, %s, 'input.accepted', jsonb_build_object('input_id', md5(n::text)::uuid, 'text', %s::text)
    FROM generate_series(1, %s) n
    RETURNING id, session_id, run_id, data->>'input_id' AS input_id
)
INSERT INTO session_events (session_id, run_id, type, data, input_event_id)
SELECT session_id, run_id, 'input.consumed', jsonb_build_object('input_id', input_id, 'step', 1), id
FROM accepted ORDER BY id
"""
_ANSWER = """
INSERT INTO session_events (session_id, run_id, type, data)
VALUES (%s, %s, 'message', '{"role": "assistant", "text": "Well."}'), (%s, %s, 'run.succeeded', '{}')
"""
_AUDIT_EVENTS = """
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)
SELECT (lpad(to_hex(((extract(epoch FROM now()) - 3600) * 1000)::bigint - %s + n), 12, '0')
        || '70008' || substr(md5(n::text), 1, 15))::uuid,
       %s, CASE WHEN n %% 2 = 0 THEN 'create_session' ELSE 'change_session' END, 'session', md5(n::text)::uuid,
       (SELECT owner_id FROM workspaces WHERE id = %s), '{}'
FROM generate_series(1, %s) n
"""


def text_of(size: int) -> str:
    """Text that neither PostgreSQL nor gzip makes much smaller."""
    noise = random.Random(size).randbytes(size)  # noqa: S311
    return base64.b64encode(noise).decode()[:size]


async def add_history(server: Server, session_id: UUID, inputs: int, text: str) -> None:
    """One run that has ended and consumed as many inputs of this text, in the rows of release 0.1: each later release
    can read them."""
    workspace_id = server.workspace_id
    ((run_id,),) = await server.statement(_RUN, session_id, workspace_id, inputs, inputs)
    await server.statement(_INPUTS, session_id, run_id, workspace_id, text, inputs)
    await server.statement(_ANSWER, session_id, run_id, session_id, run_id)


async def add_audit_events(server: Server, count: int) -> None:
    await server.statement(_AUDIT_EVENTS, count, server.workspace_id, server.workspace_id, count)
