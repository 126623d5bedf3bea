"""What large pushes hold in memory: 8 of 32 MiB at once, over the idle process."""

import asyncio

from bench import archives
from bench.case import Case, Round, Taken, at_most
from bench.pushing import Pushing, pushing
from bench.resources import forget_peak, peak_mib, resident_mib

_AT_ONCE = 8


async def us(stage: Pushing, one: Round) -> Taken:
    archive = archives.largest(one.rows(31))
    forget_peak(stage.server.process_id)
    await asyncio.gather(*(stage.push(archive, skill) for skill in range(one.rows(_AT_ONCE))))
    peak = peak_mib(stage.server.process_id)
    notes = {"idle, MiB": stage.idle_mib, "left afterwards, MiB": resident_mib(stage.server.process_id)}
    return Taken(peak - stage.idle_mib, notes=notes)


CASE = Case(
    title=f"{_AT_ONCE} pushes of 32 MiB at once, memory over idle",
    unit="MiB",
    reach=at_most(64),
    stage=pushing,
    us=us,
    rounds=3,
    warm_up=False,
)
