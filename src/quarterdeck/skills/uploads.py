"""Limits for uploads and comparisons: how many at a time, how many of one workspace, temporary files, and threads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TypeVar
from uuid import UUID

from quarterdeck.blobs.service import open_spool
from quarterdeck.core.settings import BundleSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle

T = TypeVar("T")

# Threads that workspaces share: while one has much to do, another finds a thread or gets the next.


class SharedThreads:
    def __init__(self, count: int, per_workspace: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=what)
        self._slots = Slots(count, per_workspace)
        self._what = what

    async def run(self, workspace_id: UUID, wait_seconds: float, work: Callable[[], T]) -> T:
        async with hold_slot(self._slots, workspace_id, wait_seconds, self._what):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be stopped. Without the slot, a workspace could take all threads by leaving early.
                await asyncio.wait({running})
                raise

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


# For a thread, by a caller that has a slot. The slots limit the work before it, so only a fault takes this long.
_THREAD_WAIT_SECONDS = 600.0


class Uploads:
    def __init__(self, settings: BundleSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._uploads = Slots(settings.uploads, settings.per_workspace(settings.uploads))
        self._diffs = Slots(settings.diffs, settings.per_workspace(settings.diffs))
        # Separate threads for each: a hostile archive takes up to a second, which must not delay other work.
        self._scan_threads = SharedThreads(settings.scans, settings.per_workspace(settings.scans), "uploads")
        self._diff_threads = SharedThreads(settings.scans, settings.per_workspace(settings.scans), "diffs")

    @asynccontextmanager
    async def spool(self, workspace_id: UUID) -> AsyncIterator[IO[bytes]]:
        """A temporary file for one upload. A caller that waits for its turn has not sent the body yet, so it holds
        neither memory nor disk."""
        async with hold_slot(self._uploads, workspace_id, self._settings.upload_wait_seconds, "uploads"):
            with open_spool(self._folder) as spool:
                yield spool

    async def scan(self, workspace_id: UUID, archive: IO[bytes]) -> Bundle:
        archive.seek(0)
        return await self._scan_threads.run(
            workspace_id, _THREAD_WAIT_SECONDS, lambda: read_bundle(archive, self._settings)
        )

    @asynccontextmanager
    async def comparing(self, workspace_id: UUID) -> AsyncIterator[None]:
        """A slot for one comparison of two versions."""
        async with hold_slot(self._diffs, workspace_id, self._settings.upload_wait_seconds, "diffs"):
            yield

    async def compare(self, workspace_id: UUID, work: Callable[[], T]) -> T:
        """In a thread: a diff may take a second of processor time."""
        return await self._diff_threads.run(workspace_id, _THREAD_WAIT_SECONDS, work)

    def close(self) -> None:
        self._scan_threads.close()
        self._diff_threads.close()
