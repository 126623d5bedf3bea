"""What a whole run costs when many are sent at once: submit, job, one step of a model that answers at once, finish."""

from bench.case import Case, Round, Taken, at_most
from bench.whole_runs import Service, cost, one_worker

_RUNS = 1_000


async def us(service: Service, one: Round) -> Taken:
    return await cost(service, one.rows(_RUNS), connections=16)


CASE = Case(
    title="a whole run, 16 connections, processor time",
    unit="ms",
    reach=at_most(2.5),
    stage=one_worker,
    us=us,
    rounds=3,
    warm_up=False,
)
