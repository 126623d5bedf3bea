"""Runs that stream, each with a reader: processor time of API, worker and PostgreSQL for a second of a run."""

from bench.case import Case, Round, Taken, at_most
from bench.server import Server
from bench.streaming import cost, with_models

RUNS = 20


async def us(server: Server, one: Round) -> Taken:
    return await cost(server, one.rows(RUNS), one.seconds, read=True)


CASE = Case(
    title="a streamed second of a run with a reader, processor time",
    unit="ms",
    reach=at_most(3),
    stage=with_models,
    us=us,
    rounds=3,
    seconds=8,
    warm_up=False,
)
