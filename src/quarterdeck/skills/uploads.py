"""Limits for uploads and comparisons: how many at a time, how many of one workspace, temporary files, and threads."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs.service import NewBlob, open_spool
from quarterdeck.core.settings import BundleSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle

T = TypeVar("T")

# For a thread, by a caller that has a slot. The slots limit the work before it, so only a fault takes this long.
_THREAD_WAIT_SECONDS = 600.0
# Contents that are stored together.
_BATCH = 1_000


class SharedThreads:
    """Threads that workspaces share: while one has much to do, another finds a thread or gets the next."""

    def __init__(self, count: int, per_workspace: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=what)
        self._slots = Slots(count, per_workspace)
        self._what = what

    async def run(self, workspace_id: UUID, work: Callable[[], T]) -> T:
        async with hold_slot(self._slots, workspace_id, _THREAD_WAIT_SECONDS, self._what):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A thread cannot be stopped. Without the slot, a workspace could take all threads by leaving early.
                await asyncio.wait({running})
                raise

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Part(io.RawIOBase):
    """A part of a file, as a file of its own. Threads may read several parts of one file at the same time."""

    def __init__(self, file: IO[bytes], lock: threading.Lock, start: int, size: int) -> None:
        self._file = file
        self._lock = lock
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        count = max(0, min(len(buffer), self._size - self._at))
        with self._lock:
            self._file.seek(self._start + self._at)
            piece = self._file.read(count)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


class BundleUpload(Struct, frozen=True):
    """Two temporary files: the archive as it is received, and the contents of its files one after the other."""

    archive: IO[bytes]
    unpacked: IO[bytes]

    def contents(self, bundle: Bundle) -> Iterator[dict[str, NewBlob]]:
        """The archive and the contents of its files by SHA-256, in batches."""
        lock = threading.Lock()
        sizes = {file.sha256: file.bytes for file in bundle.manifest.files}
        batch = {bundle.manifest.archive_sha256: NewBlob(self.archive, bundle.bundle_bytes)}
        for sha256, start in bundle.starts.items():
            part = io.BufferedReader(_Part(self.unpacked, lock, start, sizes[sha256]))
            batch[sha256] = NewBlob(part, sizes[sha256])
            if len(batch) == _BATCH:
                yield batch
                batch = {}
        if batch:
            yield batch


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
    async def receive(self, workspace_id: UUID) -> AsyncIterator[BundleUpload]:
        """A caller that waits for its turn has not sent the body yet, so it holds neither memory nor disk."""
        async with hold_slot(self._uploads, workspace_id, self._settings.upload_wait_seconds, "uploads"):
            with open_spool(self._folder) as archive, open_spool(self._folder) as unpacked:
                yield BundleUpload(archive, unpacked)

    async def scan(self, workspace_id: UUID, upload: BundleUpload) -> Bundle:
        upload.archive.seek(0)
        return await self._scan_threads.run(
            workspace_id, lambda: read_bundle(upload.archive, self._settings, upload.unpacked)
        )

    @asynccontextmanager
    async def comparing(self, workspace_id: UUID) -> AsyncIterator[None]:
        """A slot for one comparison of two versions."""
        async with hold_slot(self._diffs, workspace_id, self._settings.upload_wait_seconds, "diffs"):
            yield

    async def compare(self, workspace_id: UUID, work: Callable[[], T]) -> T:
        """In a thread: a diff may take a second of processor time."""
        return await self._diff_threads.run(workspace_id, work)

    def close(self) -> None:
        self._scan_threads.close()
        self._diff_threads.close()
