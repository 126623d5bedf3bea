"""What a second API process brings. On two cores it competes with the client and the database for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from bench.case import Case, Ground, Round, Taken
from bench.server import Server
from bench.stages import STEERED, steered
from bench.submitting import over_http


class Fleets(Struct, frozen=True):
    two: Server
    one: Server


@asynccontextmanager
async def fleets(ground: Ground) -> AsyncIterator[Fleets]:
    async with steered(ground, SERVER_PROCESSES=2) as two, steered(ground) as one:
        yield Fleets(two, one)


async def us(stage: Fleets, one: Round) -> Taken:
    return (await over_http(stage.two, STEERED, one.seconds, connections=128)).taken


async def ceiling(stage: Fleets, one: Round) -> Taken:
    return (await over_http(stage.one, STEERED, one.seconds, connections=128)).taken


CASE = Case(
    title="submit, 128 connections, two API processes",
    unit="/s",
    against="one API process",
    stage=fleets,
    us=us,
    ceiling=ceiling,
    rounds=3,
)
