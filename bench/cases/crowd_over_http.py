"""200 runs in one worker, each one answer of a provider that streams slowly: with a provider's library in memory."""

from bench.case import Case, Round, Taken, at_most
from bench.crowd import AT_ONCE, crowd
from bench.provider import provider
from bench.server import Server
from bench.stages import empty


async def us(server: Server, one: Round) -> Taken:
    async with provider() as url:
        return await crowd(server, "Go.", model="openai-chat:bench", MODEL_OPENAI_BASE_URL=url)


CASE = Case(
    title=f"{AT_ONCE} runs in one worker, over HTTP, peak memory",
    unit="MiB",
    reach=at_most(300),
    stage=empty,
    us=us,
    rounds=1,
    warm_up=False,
)
