"""200 runs in one worker, each one answer of a provider that streams slowly: with a provider's library in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.case import Case, Ground, Round, Taken, at_most
from bench.crowd import AT_ONCE, crowd
from bench.provider import provider
from bench.server import Server, serving


@asynccontextmanager
async def with_provider(ground: Ground) -> AsyncIterator[Server]:
    """The API only checks that there is a provider. The address is that of the worker's."""
    async with serving(ground, MODEL_OPENAI_BASE_URL="http://127.0.0.1:1/v1") as server:
        yield server


async def us(server: Server, one: Round) -> Taken:
    async with provider() as url:
        return await crowd(server, "Go.", one.rows(AT_ONCE), model="openai-chat:bench", MODEL_OPENAI_BASE_URL=url)


CASE = Case(
    title=f"{AT_ONCE} runs in one worker, over HTTP, peak memory",
    unit="MiB",
    reach=at_most(300),
    stage=with_provider,
    us=us,
    rounds=1,
    warm_up=False,
)
