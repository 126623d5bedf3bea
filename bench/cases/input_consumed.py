"""How soon a run hears of an input: one that takes step after step without a pause, inputs at odd moments."""

import asyncio
import random
from statistics import median
from time import monotonic
from uuid import UUID

from bench.case import BenchError, Case, Round, Taken, at_most
from bench.moments import consumed_after_ms
from bench.server import Caller, Server
from bench.stages import idle_worker
from quarterdeck.runs.model import Outcome

_SAMPLES = 60
_PATIENCE_SECONDS = 15.0


async def us(server: Server, one: Round) -> Taken:
    samples = one.rows(_SAMPLES)
    waited_ms: list[float] = []
    async with server.caller() as caller:
        while len(waited_ms) < samples:
            (session_id,) = await caller.new_sessions(1)
            texts = await _steer_until_it_ends(caller, session_id, samples - len(waited_ms))
            waited_ms += await _waited_ms(caller, session_id, texts)
    return Taken(median(waited_ms), waited_ms)


async def _waited_ms(caller: Caller, session_id: UUID, texts: set[str]) -> list[float]:
    """Of all of them. A run that has used up its steps leaves its last inputs to the next one."""
    deadline = monotonic() + _PATIENCE_SECONDS
    while len(waited_ms := consumed_after_ms(await caller.log(session_id), texts)) < len(texts):
        if monotonic() > deadline:
            raise BenchError(f"{len(texts) - len(waited_ms)} of {len(texts)} inputs were never consumed")
        await asyncio.sleep(0.05)
    return waited_ms


async def _steer_until_it_ends(caller: Caller, session_id: UUID, most: int) -> set[str]:
    """The texts that steered."""
    first = await caller.submit(session_id, "demo: steps 99")
    await caller.until_started(first.run_id)
    texts: set[str] = set()
    while len(texts) < most:
        await asyncio.sleep(random.uniform(0.005, 0.025))  # noqa: S311
        text = f"Mind this too: {len(texts)}."
        submitted = await caller.submit(session_id, text)
        if submitted.outcome is not Outcome.STEERED:
            break
        texts.add(text)
    await caller.until_ended(first.run_id)
    return texts


CASE = Case(
    title="input steered → consumed, median",
    unit="ms",
    reach=at_most(20),
    stage=idle_worker,
    us=us,
    rounds=3,
)
