"""Runs that wait for an approval, written by SQL as a worker would have left them, and two stages to compare."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from bench.case import BenchError, Ground
from bench.server import Server, serving
from bench.stages import Pair, steered
from bench.submitting import Sessions, add_sessions

WAITING = Sessions(10_000, first=1_000_001)
_EVENTS_A_RUN = 6
_PLAN = """
CREATE TEMPORARY TABLE waiting_runs AS
SELECT s.id AS session_id, s.workspace_id, uuidv7() AS run_id, uuidv7() AS input_id, uuidv7() AS action_id,
       'call_' || s.id AS call_id, jsonb_build_object('text', 'Deck ' || s.id) AS arguments,
       setval('session_event_ids', nextval('session_event_ids') + {events}) - {events} AS first_event
FROM sessions s WHERE NOT EXISTS (SELECT FROM runs r WHERE r.session_id = s.id)
"""
_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through, updated_at,
                  inputs_consumed, steps, input_tokens, output_tokens, started_at, waiting_since)
SELECT run_id, session_id, workspace_id, 'waiting', 1, first_event, first_event, first_event, now(), 1, 1, 900, 120,
       now(), now()
FROM waiting_runs
"""
_ACTIONS = """
INSERT INTO actions (id, workspace_id, session_id, run_id, kind, step, call_id, tool, arguments, reason, expires_at)
SELECT action_id, workspace_id, session_id, run_id, 'approval', 1, call_id, 'add_note', arguments,
       'The tool add_note needs an approval.', now() + interval '7 days'
FROM waiting_runs
"""
_EVENTS = """
INSERT INTO session_events (id, session_id, run_id, workspace_id, type, data)
SELECT first_event + entry.number, session_id, run_id, CASE entry.number WHEN 0 THEN workspace_id END, entry.type,
       entry.data
FROM waiting_runs CROSS JOIN LATERAL (VALUES
    (0, 'input.accepted', jsonb_build_object('input_id', input_id, 'text', 'note: Deck ' || session_id)),
    (1, 'run.started', '{"attempt": 1}'),
    (2, 'input.consumed', jsonb_build_object('input_id', input_id, 'step', 1)),
    (3, 'message', '{"role": "assistant", "text": "I add a note."}'),
    (4, 'tool.call', jsonb_build_object('call_id', call_id, 'name', 'add_note', 'arguments', arguments)),
    (5, 'action.required', jsonb_build_object('action_id', action_id, 'kind', 'approval', 'call_id', call_id,
        'tool', 'add_note', 'arguments', arguments, 'reached', NULL, 'reason', 'The tool add_note needs an approval.',
        'expires_at', now() + interval '7 days'))
) AS entry (number, type, data)
"""
_JOBS = """
SELECT count(*), count(j.id) FROM runs r LEFT JOIN run_jobs j ON j.run_id = r.id
WHERE r.state = 'waiting'
"""
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def add_waiting_runs(server: Server) -> None:
    """In every session that has no run."""
    async with server.transaction() as connection:
        await connection.execute(_PLAN.format(events=_EVENTS_A_RUN).encode())
        for statement in (_RUNS, _ACTIONS, _EVENTS):
            await connection.execute(statement)


async def check_waiting(server: Server, count: int) -> None:
    """They all still wait, and none has a job."""
    ((waiting, jobs),) = await server.statement(_JOBS)
    if (waiting, jobs) != (count, 0):
        raise BenchError(f"{waiting} runs wait instead of {count}, and they have {jobs} jobs")


async def connections(server: Server) -> int:
    ((count,),) = await server.statement(_CONNECTIONS)
    return int(count)


@asynccontextmanager
async def steered_beside_waiting(ground: Ground) -> AsyncIterator[Pair]:
    """Two databases with 10,000 sessions to submit to. The large one has 10,000 waiting runs beside them."""
    async with steered(ground) as large, steered(ground) as small:
        await add_sessions(large, WAITING)
        await add_waiting_runs(large)
        await large.settle()
        yield Pair(large, small)


class Answered(Struct, frozen=True):
    """A server with waiting runs and an idle worker, and how many connections both had before and with them."""

    server: Server
    connections_before: int
    connections_with: int


@asynccontextmanager
async def waiting_beside_worker(ground: Ground) -> AsyncIterator[Answered]:
    async with serving(ground) as server:
        with server.worker(MODEL_DEMO_PAUSE_SECONDS=0):
            async with server.caller() as caller:
                await caller.warm_up()
            before = await connections(server)
            await add_sessions(server, WAITING)
            await add_waiting_runs(server)
            await server.settle()
            yield Answered(server, before, await connections(server))
