"""Inputs, as many as fit: over HTTP by wrk, and the same statement for one input at a time by pgbench.

Both are counted in the log afterwards: what a side says it did must be there.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from uuid import UUID, uuid4

from msgspec import Struct
from quarterdeck.db.arrays import bytea_array, text_array, uuid_array

from bench import pgbench, wrk
from bench.case import BenchError, Taken
from bench.resources import cpu_seconds
from bench.server import Server
from quarterdeck.conversations.runs import store

TEXT = "Please look at the release notes and tell me what is missing."
CONNECTIONS = 64
CLIENTS = 16
_SESSION_PREFIX = "01900000-0000-7000-8000-"
_ANY_SESSION = UUID(f"{_SESSION_PREFIX}000000000000")
_ANY_RUN = UUID(f"{_SESSION_PREFIX}ffffffffffff")
_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 20.0
_ADD_SESSIONS = """
INSERT INTO sessions (id, workspace_id, created_by)
SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, w.id, w.owner_id
FROM workspaces w, generate_series(%s::bigint, %s::bigint) n WHERE w.id = %s
"""
# Queued, and without a job: nobody drives it, so every input steers.
_ADD_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, last_input, consumed_through)
SELECT uuidv7(), id, workspace_id, 'queued', 1, 0 FROM sessions
"""
# In pgbench's language. `step` is the number of clients.
_AT_RANDOM = "\\set i :first + :stride * random(0, :count - 1)"
_IN_TURN = "\\set i :first + :stride * (:client_id + :step * :n)\n\\set n :n + 1"
_UNDER_WAY = """
SELECT last_value, (SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'active' AND backend_type = 'client backend'
                      AND pid <> pg_backend_pid())
FROM session_event_ids
"""
_NOW = "SELECT clock_timestamp()"
_ACCEPTED_SINCE = "SELECT count(*) FROM session_events WHERE workspace_id = %s AND created_at >= %s"


class Load(Struct, frozen=True):
    """Over HTTP."""

    report: wrk.Report
    # Of the API's processes, for each input. Unlike a rate it hardly depends on what else the machine does.
    api_cpu_us: float

    @property
    def taken(self) -> Taken:
        return Taken(self.report.per_second, notes={"API, µs of a core an input": self.api_cpu_us})


class Sessions(Struct, frozen=True):
    """Every `stride`th from the number `first` on. `in_turn`: each once, one after the other; else at random."""

    count: int
    first: int = 1
    stride: int = 1
    in_turn: bool = False


async def add_sessions(server: Server, sessions: Sessions) -> None:
    last = sessions.first + sessions.count - 1
    await server.statement(_ADD_SESSIONS, sessions.first, last, server.workspace_id)


async def add_active_runs(server: Server) -> None:
    await server.statement(_ADD_RUNS)


async def over_http(
    server: Server, sessions: Sessions, seconds: int, *, connections: int = CONNECTIONS, keyed: bool = False
) -> Load:
    keys = {"keys": uuid4().hex} if keyed else {}
    order = "next" if sessions.in_turn else "random"
    cpu_before = cpu_seconds(server.process_id)
    async with _counted(server, connections) as claim:
        report = await wrk.load(
            server.port,
            "submit",
            connections=connections,
            seconds=seconds,
            key=server.key,
            first=sessions.first,
            sessions=sessions.count,
            stride=sessions.stride,
            order=order,
            text=TEXT,
            **keys,
        )
        claim.inputs = report.requests
        await _until_quiet(server)
    cpu_us = (cpu_seconds(server.process_id) - cpu_before) * 1_000_000
    return Load(report, cpu_us / report.requests)


async def by_pgbench(
    server: Server, sessions: Sessions, seconds: int, *, clients: int = CLIENTS, logged: bool = False
) -> pgbench.Report:
    script = _script(server, sessions)
    async with _counted(server, 0) as claim:
        report = await pgbench.load(
            server.database_url,
            script,
            clients=clients,
            seconds=seconds,
            logged=logged,
            first=sessions.first,
            count=sessions.count,
            stride=sessions.stride,
            step=clients,
            n=0,
        )
        claim.inputs = report.transactions
    return report


async def _until_quiet(server: Server) -> None:
    """What wrk had asked for and did not wait to hear is still under way when it ends: not for the next to count."""
    deadline = monotonic() + _PATIENCE_SECONDS
    seen: object = None
    while True:
        ((last, at_work),) = await server.statement(_UNDER_WAY)
        if last == seen and not at_work:
            return
        if monotonic() > deadline:
            raise BenchError("inputs are still being stored long after the last was sent")
        seen = last
        await asyncio.sleep(_LOOK_SECONDS)


class _Claim(Struct):
    inputs: int = 0


@asynccontextmanager
async def _counted(server: Server, unheard: int) -> AsyncIterator[_Claim]:
    """`unheard`: how many more there may be, because nobody waited for the answers."""
    ((since,),) = await server.statement(_NOW)
    claim = _Claim()
    yield claim
    ((found,),) = await server.statement(_ACCEPTED_SINCE, server.workspace_id, since)
    if not claim.inputs <= found <= claim.inputs + unheard:
        raise BenchError(f"{claim.inputs} inputs were reported and {found} are in the log")


def _script(server: Server, sessions: Sessions) -> str:
    """The statement that the service itself would send for one input, with another session each time."""
    values = [
        bytea_array([hashlib.sha256(server.key.encode()).digest()]),
        "{f}",
        uuid_array([_ANY_SESSION]),
        "{NULL}",
        text_array([TEXT]),
        uuid_array([uuid4()]),
        uuid_array([_ANY_RUN]),
        "{NULL}",
        "{NULL}",
    ]
    statement = re.sub(r"\$(\d)", lambda place: f"'{values[int(place[1]) - 1]}'", store._SUBMIT)
    pick = _IN_TURN if sessions.in_turn else _AT_RANDOM
    return f"{pick}\n{with_expressions(statement)};\n"


def with_expressions(statement: str) -> str:
    """What stands for the session and for a fresh run becomes what PostgreSQL works out for each call."""
    session = f"('{_SESSION_PREFIX}' || lpad(to_hex(:i::bigint), 12, '0'))::uuid"
    for stands, expression in ((_ANY_SESSION, session), (_ANY_RUN, "uuidv7()")):
        # With hyphens or without.
        written = "-?".join(str(stands).split("-"))
        statement, found = re.subn(rf"'{{\"?{written}\"?}}'", f"ARRAY[{expression}]", statement)
        assert found, f"the statement has no place for {stands}"
    return statement
