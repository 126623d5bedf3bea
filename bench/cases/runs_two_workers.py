"""Runs that two worker processes execute in a second, out of a backlog."""

from bench.case import Case, Round, Taken
from bench.server import Server
from bench.stages import empty
from bench.whole_runs import backlog

_RUNS = 1_500


async def us(server: Server, one: Round) -> Taken:
    return await backlog(server, one, _RUNS, workers=2)


async def ceiling(server: Server, one: Round) -> Taken:
    return await backlog(server, one, _RUNS, workers=1)


CASE = Case(
    title="runs executed, two worker processes",
    unit="/s",
    against="one worker process",
    stage=empty,
    us=us,
    ceiling=ceiling,
    rounds=3,
    warm_up=False,
)
