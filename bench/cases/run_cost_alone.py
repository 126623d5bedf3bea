"""What a whole run costs when inputs are sent over one connection, one after the other: fewer share a commit."""

from bench.case import Case, Round, Taken
from bench.whole_runs import Service, cost, one_worker

_RUNS = 500


async def us(service: Service, one: Round) -> Taken:
    return await cost(service, one.rows(_RUNS), connections=1)


CASE = Case(
    title="a whole run, 1 connection, processor time",
    unit="ms",
    stage=one_worker,
    us=us,
    rounds=3,
    warm_up=False,
)
