"""What a long history costs an input: 10,000 active sessions of a million, and as many on a new database."""

from bench.case import Case, Round, Taken, at_least
from bench.filling import ACTIVE_EVERY
from bench.stages import STEERED, Pair, long_history
from bench.submitting import Sessions, over_http


async def us(stage: Pair, one: Round) -> Taken:
    # Those that have an active run.
    sessions = Sessions(one.rows(10_000), first=ACTIVE_EVERY, stride=ACTIVE_EVERY)
    return (await over_http(stage.large, sessions, one.seconds)).taken


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
