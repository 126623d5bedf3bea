"""One interface for both clients, so that a test can run with each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quarterdeck.client import AsyncClient, Client

KINDS = ("sync", "async")


class Both:
    """`Client` runs in a thread, because the server of a test may run in the same event loop."""

    def __init__(self, inner: Client | AsyncClient) -> None:
        self.inner = inner

    async def call(self, name: str, /, *arguments: Any, **options: Any) -> Any:
        method = getattr(self.inner, name)
        if isinstance(self.inner, Client):
            return await asyncio.to_thread(method, *arguments, **options)
        return await method(*arguments, **options)

    async def walk(self, name: str, /, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        found = getattr(self.inner, name)(*arguments, **options)
        if isinstance(self.inner, AsyncClient):
            try:
                async for each in found:
                    yield each
            finally:
                await found.aclose()
            return
        end = object()
        while (each := await asyncio.to_thread(next, found, end)) is not end:
            try:
                yield each
            except GeneratorExit:
                # Elsewhere it has ended, or its thread is still in it.
                found.close()
                raise

    async def all(self, name: str, /, *arguments: Any, **options: Any) -> list[Any]:
        return [each async for each in self.walk(name, *arguments, **options)]


@asynccontextmanager
async def opened(kind: str, url: str, key: str, **options: Any) -> AsyncIterator[Both]:
    if kind == "sync":
        with Client(url, key, **options) as client:
            yield Both(client)
    else:
        async with AsyncClient(url, key, **options) as client:
            yield Both(client)
