"""The first page of a long list."""

from bench.case import Case, Round, Taken, at_least
from bench.keys import first_page
from bench.stages import Pair, many_keys


async def us(stage: Pair, one: Round) -> Taken:
    return await first_page(stage.large, 200, one.seconds)


async def ceiling(stage: Pair, one: Round) -> Taken:
    return await first_page(stage.small, 200, one.seconds)


CASE = Case(
    title="keys: first page of 200 out of 1 M",
    unit="/s",
    against="first page of 200 out of 1,000",
    reach=at_least(0.9),
    stage=many_keys,
    us=us,
    ceiling=ceiling,
)
