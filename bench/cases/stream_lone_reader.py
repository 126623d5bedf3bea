"""One reader, one input at a time: how soon it is seen, from the first byte sent."""

import asyncio
from statistics import median
from time import perf_counter

from bench.case import Case, Round, Taken
from bench.readers import reading
from bench.server import Server
from bench.stages import empty
from bench.submitting import TEXT

_SAMPLES = 60


async def us(server: Server, one: Round) -> Taken:
    took_ms: list[float] = []
    async with server.caller() as caller:
        (session_id,) = await caller.new_sessions(1)
        async with reading(server, [session_id], 1) as readers:
            ((reader,),) = readers.values()
            for number in range(one.rows(_SAMPLES)):
                began = perf_counter()
                await caller.submit(session_id, f"{TEXT} {number}")
                # Longer than the pause between two hints: a lone input, not the second of two.
                await asyncio.sleep(0.02)
                await reader.until_seen(number + 1)
                took_ms.append((reader.seen_at[number] - began) * 1000)
    return Taken(median(took_ms), took_ms)


CASE = Case(
    title="submit → seen in a stream, one reader, median",
    unit="ms",
    stage=empty,
    us=us,
    rounds=3,
)
