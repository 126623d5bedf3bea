"""Where cases take place. A stage is opened once for all cases that name it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.case import Ground
from bench.server import Server, serving
from bench.submitting import Sessions, add_active_runs, add_sessions

STEERED = Sessions(10_000)


@asynccontextmanager
async def steered(ground: Ground) -> AsyncIterator[Server]:
    """10,000 sessions with a run each that nobody drives: every input steers."""
    async with serving(ground) as server:
        await add_sessions(server, STEERED)
        await add_active_runs(server)
        await server.settle()
        yield server


@asynccontextmanager
async def empty(ground: Ground) -> AsyncIterator[Server]:
    async with serving(ground) as server:
        yield server


@asynccontextmanager
async def idle_worker(ground: Ground) -> AsyncIterator[Server]:
    """A worker that has done its first runs. Its model takes no time."""
    async with serving(ground) as server:
        with server.worker(MODEL_DEMO_PAUSE_SECONDS=0):
            async with server.caller() as caller:
                await caller.warm_up()
            yield server
