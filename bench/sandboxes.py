"""Commands in the folders of sessions, with a worker that has a sandbox."""

import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import UUID

from bench.case import BenchError, Ground
from bench.moments import ms
from bench.server import Caller, Server, serving
from quarterdeck.events.model import EventType

SANDBOX: dict[str, object] = {"SANDBOX_KIND": "bubblewrap"}
_QUICK: dict[str, object] = {"MODEL_DEMO_PAUSE_SECONDS": 0}
# The longest time of a command, and of storing what it wrote on a busy machine.
_CALL_SECONDS = 240.0
NO_OUTPUT = "[No output.]"


@asynccontextmanager
async def without_worker(ground: Ground) -> AsyncIterator[Server]:
    """For cases that start and stop workers, by `worker`."""
    async with serving(ground, **SANDBOX) as server:
        yield server


@asynccontextmanager
async def worker(server: Server, **settings: object) -> AsyncIterator[Caller]:
    with worker_process(server, **settings):
        async with server.caller() as caller:
            await caller.warm_up()
            yield caller


@contextmanager
def worker_process(server: Server, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    with server.worker(**_QUICK, **SANDBOX, **settings) as process:
        yield process


@contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def sandboxed_worker(ground: Ground) -> AsyncIterator[Server]:
    async with _serving(ground) as server:
        yield server


@asynccontextmanager
async def forgetful_worker(ground: Ground) -> AsyncIterator[Server]:
    """It keeps no folder after a run, so every run restores the files of its session."""
    async with _serving(ground, SANDBOX_KEPT_FOLDERS=0) as server:
        yield server


@asynccontextmanager
async def _serving(ground: Ground, **settings: object) -> AsyncIterator[Server]:
    async with without_worker(ground) as server, worker(server, **settings):
        yield server


async def call_ms(caller: Caller, session_id: UUID, command: str) -> float:
    """From the start of the call to its result, as the log has them."""
    submitted = await caller.submit(session_id, f"call: bash {json.dumps({'command': command})}")
    await caller.until_ended(submitted.run_id, _CALL_SECONDS)
    events = [event for event in await caller.log(session_id) if event.run_id == submitted.run_id]
    started = [event.created_at for event in events if event.type == EventType.TOOL_STARTED]
    results = [event for event in events if event.type == EventType.TOOL_RESULT]
    if len(started) != 1 or [result.data["text"] for result in results] != [NO_OUTPUT]:
        raise BenchError(f"a command failed: {[result.data['text'][:200] for result in results]}")
    return ms(results[0].created_at - started[0])


async def session_with_files(caller: Caller, files: int) -> UUID:
    """Files of 2 KiB, in folders of a hundred."""
    [session_id] = await caller.new_sessions(1)
    write = "mkdir -p $((i / 100)); { echo $i; head -c 2000 /dev/zero; } > $((i / 100))/$i"
    await call_ms(caller, session_id, f"for i in $(seq {files}); do {write}; done")
    return session_id
