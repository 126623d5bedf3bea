"""What the service costs around its query: a page of 50 keys out of 1,000."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from bench.bare import bare
from bench.case import Case, Ground, Round, Taken, at_least
from bench.filling import fill_keys
from bench.keys import first_page, page_rate
from bench.server import Server, serving

_KEYS = 1_000


class Stage(Struct, frozen=True):
    server: Server
    bare_port: int


@asynccontextmanager
async def stage(ground: Ground) -> AsyncIterator[Stage]:
    async with serving(ground) as server:
        fill_keys(server.database_url, workspace_id=server.workspace_id, keys=_KEYS)
        async with bare(server) as port:
            yield Stage(server, port)


async def us(stage: Stage, one: Round) -> Taken:
    return await first_page(stage.server, 50, one.seconds)


async def ceiling(stage: Stage, one: Round) -> Taken:
    path = f"/keys/{stage.server.workspace_id}"
    return Taken(await page_rate(stage.server, stage.bare_port, path, one.seconds))


CASE = Case(
    title="keys: page of 50",
    unit="/s",
    against="bare query by psycopg, empty handler",
    reach=at_least(0.4),
    stage=stage,
    us=us,
    ceiling=ceiling,
    smoke=True,
)
