"""Threads that workspaces share: while one has much to do, another finds a thread or gets the next."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

from quarterdeck.core.places import Places, hold_place

T = TypeVar("T")


class SharedThreads:
    def __init__(self, count: int, per_workspace: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=what)
        self._places = Places(count, per_workspace)
        self._what = what

    async def run(self, workspace_id: UUID, wait_seconds: float, work: Callable[[], T]) -> T:
        async with hold_place(self._places, workspace_id, wait_seconds, self._what):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be stopped. Without the place, a workspace could take all threads by leaving early.
                await asyncio.wait({running})
                raise

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
