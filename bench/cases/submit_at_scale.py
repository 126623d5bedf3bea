"""What a long history costs an input: 10,000 active sessions of a million, and as many on a new database."""

from bench.case import Case, Round, Taken, at_least
from bench.stages import STEERED, STEERED_AMONG_MANY, Pair, long_history
from bench.submitting import over_http


async def us(stage: Pair, one: Round) -> Taken:
    return (await over_http(stage.large, STEERED_AMONG_MANY, one.seconds)).taken


async def ceiling(stage: Pair, one: Round) -> Taken:
    return (await over_http(stage.small, STEERED, one.seconds)).taken


CASE = Case(
    title="submit at 10 M events, 1 M sessions, 1 M receipts",
    unit="/s",
    against="submit on an empty database",
    reach=at_least(0.9),
    stage=long_history,
    us=us,
    ceiling=ceiling,
)
