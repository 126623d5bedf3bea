"""What waiting runs cost an input: 10,000 sessions beside 10,000 runs that wait for an answer, and without those."""

from bench.case import Case, Round, Taken, at_least
from bench.stages import STEERED, Pair
from bench.submitting import over_http
from bench.waiting import WAITING, check_waiting, steered_beside_waiting


async def us(stage: Pair, one: Round) -> Taken:
    load = await over_http(stage.large, STEERED, one.seconds)
    await check_waiting(stage.large, WAITING.count)
    return load.taken


async def ceiling(stage: Pair, one: Round) -> Taken:
    return (await over_http(stage.small, STEERED, one.seconds)).taken


CASE = Case(
    title="submit beside 10,000 waiting runs",
    unit="/s",
    against="submit without waiting runs",
    reach=at_least(0.9),
    stage=steered_beside_waiting,
    us=us,
    ceiling=ceiling,
)
