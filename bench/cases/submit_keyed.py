"""What an Idempotency-Key costs: a receipt is looked for, and one is stored."""

from bench.case import Case, Round, Taken, at_least
from bench.server import Server
from bench.stages import STEERED, steered
from bench.submitting import over_http


async def us(server: Server, one: Round) -> Taken:
    return (await over_http(server, STEERED, one.seconds, keyed=True)).taken


async def ceiling(server: Server, one: Round) -> Taken:
    return (await over_http(server, STEERED, one.seconds)).taken


CASE = Case(
    title="submit with Idempotency-Key, 64 connections",
    unit="/s",
    against="submit without",
    reach=at_least(0.7),
    stage=steered,
    us=us,
    ceiling=ceiling,
    smoke=True,
)
