"""200 runs in one worker, in two slow steps each of the demo model."""

from bench.case import Case, Round, Taken, at_most
from bench.crowd import AT_ONCE, crowd
from bench.server import Server
from bench.stages import empty


async def us(server: Server, one: Round) -> Taken:
    # Long enough for the last of them to start before the first one ends.
    return await crowd(server, "demo: slow 4", one.rows(AT_ONCE))


CASE = Case(
    title=f"{AT_ONCE} runs in one worker, demo model, peak memory",
    unit="MiB",
    reach=at_most(300),
    stage=empty,
    us=us,
    rounds=1,
    warm_up=False,
)
