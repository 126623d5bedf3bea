"""How soon an idle worker begins: one run at a time, each in a fresh session."""

import asyncio
import random
from statistics import median

from bench.case import Case, Round, Taken, at_most
from bench.moments import moment, ms
from bench.server import Server
from bench.stages import idle_worker
from quarterdeck.events.model import EventType

_SAMPLES = 40


async def us(server: Server, one: Round) -> Taken:
    waited_ms: list[float] = []
    async with server.caller() as caller:
        for session_id in await caller.new_sessions(one.rows(_SAMPLES)):
            # At no fixed time between two looks of whoever polls.
            await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311
            submitted = await caller.submit(session_id, "Go.")
            await asyncio.sleep(0.05)
            await caller.until_ended(submitted.run_id)
            events = await caller.log(session_id)
            waited_ms.append(ms(moment(events, EventType.RUN_STARTED) - moment(events, EventType.INPUT_ACCEPTED)))
    return Taken(median(waited_ms), waited_ms)


CASE = Case(
    title="input accepted → run started, idle worker, median",
    unit="ms",
    reach=at_most(20),
    stage=idle_worker,
    us=us,
    rounds=3,
)
