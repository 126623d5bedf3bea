"""The application's own beginning and end, told to it as ASGI has it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Message


class StartFailed(Exception):
    """The application did not come up, and has said why."""


@asynccontextmanager
async def alive(app: ASGIApp) -> AsyncIterator[None]:
    told: asyncio.Queue[Message] = asyncio.Queue()
    said: asyncio.Queue[Message] = asyncio.Queue()
    living = asyncio.create_task(_live(app, told, said))
    try:
        await told.put({"type": "lifespan.startup"})
        answer = await said.get()
        if answer["type"] != "lifespan.startup.complete":
            raise StartFailed(answer.get("message", ""))
        yield
        await told.put({"type": "lifespan.shutdown"})
        await said.get()
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


async def _live(app: ASGIApp, told: "asyncio.Queue[Message]", said: "asyncio.Queue[Message]") -> None:
    try:
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, told.get, said.put)
    except Exception as fault:
        await said.put({"type": "lifespan.failed", "message": str(fault)})
