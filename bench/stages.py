"""Where cases take place. A stage is opened once for all cases that name it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from bench.case import Ground
from bench.filling import fill, fill_keys
from bench.server import Server, serving
from bench.submitting import UNBOUNDED, Sessions, add_active_runs, add_sessions

STEERED = Sessions(10_000)


@asynccontextmanager
async def steered(ground: Ground, **settings: object) -> AsyncIterator[Server]:
    """10,000 sessions with a run each that nobody drives: every input steers."""
    async with serving(ground, **UNBOUNDED, **settings) as server:
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


class Pair(Struct, frozen=True):
    """Two databases in the same PostgreSQL, each with an API of its own. One is under load at a time."""

    large: Server
    small: Server


@asynccontextmanager
async def long_history(ground: Ground) -> AsyncIterator[Pair]:
    """A million sessions, ten million entries in their logs and a million receipts; and, small, 10,000 new sessions."""
    async with serving(ground, **UNBOUNDED) as large, steered(ground) as small:
        await asyncio.to_thread(
            fill,
            large.database_url,
            workspace_id=large.workspace_id,
            sessions=ground.rows(1_000_000),
            events=ground.rows(10_000_000),
            receipts=ground.rows(1_000_000),
            tell=ground.tell,
        )
        yield Pair(large, small)


@asynccontextmanager
async def many_keys(ground: Ground) -> AsyncIterator[Pair]:
    """A million API keys; and, small, a thousand."""
    async with serving(ground) as large, serving(ground) as small:
        for server, keys in ((large, ground.rows(1_000_000)), (small, 1_000)):
            await asyncio.to_thread(
                fill_keys, server.database_url, workspace_id=server.workspace_id, keys=keys, tell=ground.tell
            )
        yield Pair(large, small)
