"""An empty command in the sandbox: how much longer the whole call takes than a bare process."""

import asyncio
from statistics import median
from time import perf_counter

from bench.case import Case, Round, Taken, at_most
from bench.sandboxes import call_ms, sandboxed_worker
from bench.server import Server

_SAMPLES = 30


async def us(server: Server, one: Round) -> Taken:
    calls_ms: list[float] = []
    bare_ms: list[float] = []
    async with server.caller() as caller:
        [session_id] = await caller.new_sessions(1)
        for _ in range(one.rows(_SAMPLES)):
            calls_ms.append(await call_ms(caller, session_id, "true"))
            began = perf_counter()
            await (await asyncio.create_subprocess_exec("bash", "-c", "true")).wait()
            bare_ms.append((perf_counter() - began) * 1000)
    # The first call restores the folder.
    call, bare = median(calls_ms[1:]), median(bare_ms[1:])
    return Taken(call - bare, calls_ms[1:], {"the call, ms": call, "a bare process, ms": bare})


CASE = Case(
    title="an empty `bash` call over a bare process, median",
    unit="ms",
    reach=at_most(30),
    stage=sandboxed_worker,
    us=us,
    rounds=3,
)
