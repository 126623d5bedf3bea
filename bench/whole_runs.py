"""Whole runs: each is submitted over HTTP, driven by a worker in one step of a model that answers at once, and finished.

Processor time is that of the API, the workers and PostgreSQL together, which other load on the machine affects less than
a rate.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from time import monotonic
from uuid import UUID

import psutil
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from bench.case import BenchError, Ground
from bench.peers.processor import seconds_of
from bench.server import Server, serving
from bench.submitting import Sessions, add_sessions, session_id

# The demo model calls a tool first, unless it is told not to.
TEXT = "Please look at the release notes and tell me what is missing.\ndemo: steps 0"
_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 60.0
_UNFINISHED = (
    "SELECT EXISTS (SELECT FROM runs WHERE workspace_id = %s AND attempt >= 0 AND state IN ('queued', 'running'))"
)
_SUCCEEDED = "SELECT count(*) FROM runs WHERE session_id = ANY (%s) AND state = 'succeeded' AND steps = 1"
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Executed(Struct, frozen=True):
    """Figures of one batch of runs."""

    per_second: float
    api_ms: float
    worker_ms: float
    postgres_ms: float
    transactions: float

    @property
    def cpu_ms(self) -> float:
        return self.api_ms + self.worker_ms + self.postgres_ms

    @property
    def notes(self) -> dict[str, float]:
        return {
            "API, ms of a core a run": self.api_ms,
            "workers, ms of a core a run": self.worker_ms,
            "PostgreSQL, ms of a core a run": self.postgres_ms,
            "transactions a run": self.transactions,
            "runs/s": self.per_second,
        }


class Service(Struct, frozen=True):
    server: Server
    worker_ids: list[int]
    connection: AsyncConnection[TupleRow]


@asynccontextmanager
async def service(ground: Ground, workers: int) -> AsyncIterator[Service]:
    async with serving(ground) as server:
        with ExitStack() as stack:
            settings = {"MODEL_DEMO_PAUSE_SECONDS": 0}
            processes = [stack.enter_context(server.worker(**settings)) for _ in range(workers)]
            async with await AsyncConnection.connect(server.database_url, autocommit=True) as connection:
                await connection.execute("SET search_path = app")
                yield Service(server, [process.pid for process in processes], connection)


async def execute(service: Service, first: int, runs: int, connections: int) -> Executed:
    """Submits an input to each of so many new sessions, and waits until the runs have succeeded. `first`: the number of
    the first session."""
    sessions = Sessions(runs, first=first)
    await add_sessions(service.server, sessions)
    waiting = [session_id(number) for number in range(first, first + runs)]
    before, began, commits = _cpu(service), monotonic(), await _commits(service)
    remaining = iter(waiting)
    await asyncio.gather(*(_submit(service.server, remaining) for _ in range(connections)))
    while await _value(service, _UNFINISHED, service.server.workspace_id):
        if monotonic() - began > _TIMEOUT_SECONDS:
            raise BenchError("the runs take too long")
        await asyncio.sleep(_POLL_SECONDS)
    seconds = monotonic() - began
    # Its jobs are finished after the runs. Statistics are written with a delay of a second at most.
    await asyncio.sleep(1.0)
    after = _cpu(service)
    done = await _value(service, _SUCCEEDED, waiting)
    if done != runs:
        raise BenchError(f"{done} of {runs} runs have succeeded in one step")
    api, worker, postgres = (1000 * (end - start) / runs for start, end in zip(before, after, strict=True))
    return Executed(runs / seconds, api, worker, postgres, (await _commits(service) - commits) / runs)


async def _submit(server: Server, remaining: "Sequence[UUID]") -> None:
    async with server.caller() as caller:
        for one in remaining:
            await caller.submit(one, TEXT)


def _cpu(service: Service) -> tuple[float, float, float]:
    postmaster = psutil.Process(service.connection.info.backend_pid).ppid()
    return seconds_of([service.server.process_id]), seconds_of(service.worker_ids), seconds_of([postmaster])


async def _commits(service: Service) -> int:
    return int(await _value(service, _COMMITS))


async def _value(service: Service, statement: str, *values: object):
    row = await (await service.connection.execute(statement, values)).fetchone()
    return row[0]
