"""Inputs for runs that are active."""

from bench.case import Case, Round, Taken, at_least
from bench.server import Server
from bench.stages import STEERED, steered
from bench.submitting import by_pgbench, over_http


async def us(server: Server, one: Round) -> Taken:
    return (await over_http(server, STEERED, one.seconds, connections=128)).taken


async def ceiling(server: Server, one: Round) -> Taken:
    return Taken((await by_pgbench(server, STEERED, one.seconds)).per_second)


CASE = Case(
    title="submit, 128 connections, 10,000 sessions, steering",
    unit="/s",
    against="pgbench, same statement, 16 clients",
    reach=at_least(0.9),
    stage=steered,
    us=us,
    ceiling=ceiling,
    smoke=True,
)
