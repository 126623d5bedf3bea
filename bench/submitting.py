"""Submits inputs as fast as possible: over HTTP with wrk, and with pgbench, one input per statement.

Afterwards the inputs in the log are counted: they must be as many as wrk or pgbench report.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from uuid import UUID, uuid4

from msgspec import Struct

from bench import pgbench, wrk
from bench.case import BenchError, Taken
from bench.resources import cpu_seconds
from bench.server import Server
from quarterdeck.runs import store

TEXT = "Please look at the release notes and tell me what is missing."
CONNECTIONS = 64
CLIENTS = 16
_SESSION_PREFIX = "01900000-0000-7000-8000-"
_POLL_SECONDS = 0.2
_QUIET_TIMEOUT_SECONDS = 20.0
_ADD_SESSIONS = """
INSERT INTO sessions (id, workspace_id, created_by)
SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, w.id, w.owner_id
FROM workspaces w, generate_series(%s::bigint, %s::bigint) n WHERE w.id = %s
"""
# Queued and without a job: no worker takes it, so every input steers it.
_ADD_RUNS = """
INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through)
SELECT uuidv7(), id, workspace_id, 'queued', 1, 1, 0 FROM sessions
"""
# For the API: the runs of `add_active_runs` consume nothing, so all inputs of all rounds wait.
UNBOUNDED = {"SUBMIT_RUN_WAITING_INPUTS": 10**9, "SUBMIT_RUN_WAITING_BYTES": 10**12}
# pgbench scripts. `step` is the number of clients.
_AT_RANDOM = "\\set i :first + :stride * random(0, :count - 1)"
_IN_TURN = "\\set i :first + :stride * (:client_id + :step * :n)\n\\set n :n + 1"
_IN_PROGRESS = """
SELECT last_value, (SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'active' AND backend_type = 'client backend'
                      AND pid <> pg_backend_pid())
FROM session_event_ids
"""
_NOW = "SELECT clock_timestamp()"
_ACCEPTED_SINCE = "SELECT count(*) FROM session_events WHERE workspace_id = %s AND created_at >= %s"


class Load(Struct, frozen=True):
    """The result of a load over HTTP."""

    report: wrk.Report
    # Processor time of the API's processes for each input. Other load on the machine affects it less than a rate.
    api_cpu_us: float

    @property
    def taken(self) -> Taken:
        return Taken(self.report.per_second, notes={"API, µs of a core an input": self.api_cpu_us})


class Sessions(Struct, frozen=True):
    """Every `stride`th session from number `first`. `in_turn`: each once; otherwise at random."""

    count: int
    first: int = 1
    stride: int = 1
    in_turn: bool = False


def session_id(number: int) -> UUID:
    return UUID(f"{_SESSION_PREFIX}{number:012x}")


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
    """wrk ends without waiting for its last answers. Those inputs must not be counted in the next round."""
    deadline = monotonic() + _QUIET_TIMEOUT_SECONDS
    seen: object = None
    while True:
        ((last, active),) = await server.statement(_IN_PROGRESS)
        if last == seen and not active:
            return
        if monotonic() > deadline:
            raise BenchError("inputs are still being stored long after the last was sent")
        seen = last
        await asyncio.sleep(_POLL_SECONDS)


class _Claim(Struct):
    inputs: int = 0


@asynccontextmanager
async def _counted(server: Server, unheard: int) -> AsyncIterator[_Claim]:
    """`unheard`: how many more there may be, since wrk does not wait for its last answers."""
    ((since,),) = await server.statement(_NOW)
    claim = _Claim()
    yield claim
    ((found,),) = await server.statement(_ACCEPTED_SINCE, server.workspace_id, since)
    if not claim.inputs <= found <= claim.inputs + unheard:
        raise BenchError(f"{claim.inputs} inputs were reported and {found} are in the log")


def _script(server: Server, sessions: Sessions) -> str:
    """The statement of the service for one input, with another session each time."""
    secret_hash = hashlib.sha256(server.key.encode()).hexdigest()
    values = (
        f"ARRAY['\\x{secret_hash}'::bytea]",
        f"ARRAY[('{_SESSION_PREFIX}' || lpad(to_hex(:i::bigint), 12, '0'))::uuid]",
        "ARRAY[NULL]::uuid[]",
        f"ARRAY['{TEXT}']",
        "ARRAY[uuidv7()]",
        "ARRAY[uuidv7()]",
        "ARRAY[NULL]::text[]",
        "ARRAY[NULL]::bytea[]",
        # Two clients may meet at a session. The service sends such an input again, and waits then.
        "true",
        str(UNBOUNDED["SUBMIT_RUN_WAITING_INPUTS"]),
        str(UNBOUNDED["SUBMIT_RUN_WAITING_BYTES"]),
        # Attachments, traces and batches.
        "NULL",
        "NULL",
        "NULL",
    )
    statement = store._SUBMIT
    assert statement.count("%b") == len(values), "the statement takes other parameters"
    for value in values:
        statement = statement.replace("%b", value, 1)
    pick = _IN_TURN if sessions.in_turn else _AT_RANDOM
    return f"{pick}\n{statement};\n"
