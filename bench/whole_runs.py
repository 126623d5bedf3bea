"""Whole runs: submitted over HTTP, driven by workers in one step of a model that answers at once, and finished.

Processor time is that of the API, the workers and PostgreSQL together. Other load on the machine affects it less than a
rate.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID

import psutil
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from bench.case import BenchError, Ground, Round, Taken
from bench.peers.processor import seconds_of
from bench.server import Server, serving
from bench.submitting import Sessions, add_sessions, session_id

# The demo model calls a tool first, unless it is told not to.
TEXT = "Please look at the release notes and tell me what is missing.\ndemo: steps 0"
SUBMITTERS = 16
_WARM_UP_RUNS = 300
_POLL_SECONDS = 0.1
# For the last statements of the workers, and until PostgreSQL has added up its statistics.
_SETTLE_SECONDS = 1.5
_TIMEOUT_SECONDS = 120.0
_UNFINISHED = """
SELECT EXISTS (SELECT FROM runs WHERE workspace_id = %s AND attempt >= 0 AND state IN ('queued', 'running'))
"""
_DONE = """
SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8
FROM runs WHERE session_id = ANY (%s) AND state = 'succeeded' AND steps = 1
"""
# Sessions of the bench have their number at the end of their id.
_LAST_SESSION = "SELECT id FROM sessions WHERE id <= %s ORDER BY id DESC LIMIT 1"
_HIGHEST_NUMBER = 0xFFFF_FFFF_FFFF
_BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()
"""
# Until a statement that a stopped worker has sent ends.
_STATEMENT_SECONDS = 0.05
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Service(Struct, frozen=True):
    server: Server
    worker_ids: list[int]
    connection: AsyncConnection[TupleRow]

    async def row(self, statement: LiteralString, *values: object) -> tuple[Any, ...]:
        row = await (await self.connection.execute(statement, values)).fetchone()
        assert row is not None
        return row

    def signal(self, number: signal.Signals) -> None:
        for process_id in self.worker_ids:
            psutil.Process(process_id).send_signal(number)

    def cpu_seconds(self) -> tuple[float, float, float]:
        """Of the API, the workers and PostgreSQL."""
        postmaster = psutil.Process(self.connection.info.backend_pid).ppid()
        return seconds_of([self.server.process_id]), seconds_of(self.worker_ids), seconds_of([postmaster])


@asynccontextmanager
async def one_worker(ground: Ground) -> AsyncIterator[Service]:
    async with serving(ground) as server, working(server, 1, ground.rows(_WARM_UP_RUNS)) as service:
        yield service


@asynccontextmanager
async def working(server: Server, workers: int, warm_up_runs: int) -> AsyncIterator[Service]:
    """With workers that have prepared their statements, by so many runs of each."""
    with ExitStack() as stack:
        processes = [stack.enter_context(server.worker(MODEL_DEMO_PAUSE_SECONDS=0)) for _ in range(workers)]
        async with await AsyncConnection.connect(server.database_url, autocommit=True) as connection:
            await connection.execute("SET search_path = app")
            service = Service(server, [process.pid for process in processes], connection)
            await submit(service, warm_up_runs * workers)
            await until_finished(service)
            yield service


async def submit(service: Service, count: int, connections: int = SUBMITTERS) -> list[UUID]:
    """One input to each of so many new sessions."""
    found = await service.connection.execute(_LAST_SESSION, (session_id(_HIGHEST_NUMBER),))
    last = await found.fetchone()
    # Several cases use the same database.
    first = 1 if last is None else last[0].node + 1
    await add_sessions(service.server, Sessions(count, first=first))
    sessions = [session_id(number) for number in range(first, first + count)]
    remaining = iter(sessions)
    await asyncio.gather(*(_submit(service.server, remaining) for _ in range(connections)))
    return sessions


async def _submit(server: Server, remaining: Iterator[UUID]) -> None:
    async with server.caller() as caller:
        for one in remaining:
            await caller.submit(one, TEXT)


async def until_finished(service: Service) -> None:
    deadline = monotonic() + _TIMEOUT_SECONDS
    while (await service.row(_UNFINISHED, service.server.workspace_id))[0]:
        if monotonic() > deadline:
            raise BenchError("the runs take too long")
        await asyncio.sleep(_POLL_SECONDS)


async def rate_of(service: Service, sessions: list[UUID]) -> float:
    """Runs executed in a second, by the clock of PostgreSQL. Checks that all of them were."""
    done, seconds = await service.row(_DONE, sessions)
    if done != len(sessions):
        raise BenchError(f"{done} of {len(sessions)} runs have succeeded in one step")
    return float(done / seconds)


async def cost(service: Service, runs: int, connections: int) -> Taken:
    """Processor time of a run, in ms."""
    (commits,) = await service.row(_COMMITS)
    before = service.cpu_seconds()
    sessions = await submit(service, runs, connections)
    await until_finished(service)
    await asyncio.sleep(_SETTLE_SECONDS)
    after = service.cpu_seconds()
    (commits_after,) = await service.row(_COMMITS)
    per_second = await rate_of(service, sessions)
    api, worker, postgres = (1000 * (end - start) / runs for start, end in zip(before, after, strict=True))
    notes = {
        "API, ms of a core a run": api,
        "worker, ms of a core a run": worker,
        "PostgreSQL, ms of a core a run": postgres,
        "transactions a run": (commits_after - commits) / runs,
        "runs/s": per_second,
    }
    return Taken(api + worker + postgres, notes=notes)


@asynccontextmanager
async def stopped(service: Service) -> AsyncIterator[None]:
    """While the workers are stopped (SIGSTOP), each of them between two transactions: the locks of an open one would
    refuse inputs."""
    deadline = monotonic() + _TIMEOUT_SECONDS
    try:
        while True:
            service.signal(signal.SIGSTOP)
            await asyncio.sleep(_STATEMENT_SECONDS)
            if (await service.row(_BUSY))[0] == 0:
                break
            if monotonic() > deadline:
                raise BenchError("a worker is always in a transaction")
            service.signal(signal.SIGCONT)
            await asyncio.sleep(_STATEMENT_SECONDS)
        yield
    finally:
        service.signal(signal.SIGCONT)


async def backlog(server: Server, one: Round, runs: int, workers: int) -> Taken:
    """Runs/s of so many workers. All runs are queued before they begin: the workers are stopped meanwhile."""
    runs = one.rows(runs)
    async with working(server, workers, one.rows(_WARM_UP_RUNS)) as service:
        async with stopped(service):
            sessions = await submit(service, runs)
        before = service.cpu_seconds()
        await until_finished(service)
        await asyncio.sleep(_SETTLE_SECONDS)
        _, worker, postgres = (
            1000 * (end - start) / runs for start, end in zip(before, service.cpu_seconds(), strict=True)
        )
        notes = {"workers, ms of a core a run": worker, "PostgreSQL, ms of a core a run": postgres}
        return Taken(await rate_of(service, sessions), notes=notes)
