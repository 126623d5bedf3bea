"""All callers on one session: they may wait for each other at its lock, but nobody is refused."""

from bench.case import Case, Round, Taken, at_least
from bench.server import Server
from bench.stages import STEERED, steered
from bench.submitting import Sessions, over_http

HOT = Sessions(1)


async def us(server: Server, one: Round) -> Taken:
    return (await over_http(server, HOT, one.seconds)).taken


async def ceiling(server: Server, one: Round) -> Taken:
    return (await over_http(server, STEERED, one.seconds)).taken


CASE = Case(
    title="submit, one hot session, 64 connections, no 409",
    unit="/s",
    against="10,000 sessions",
    reach=at_least(0.5),
    stage=steered,
    us=us,
    ceiling=ceiling,
    smoke=True,
)
