"""Limits for uploads, downloads and diffs of archives: how many at a time, temporary files, and threads."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TypeVar

from quarterdeck.core import errors
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle

T = TypeVar("T")

# Larger archives are spooled to a file. Most bundles are a few kilobytes; the limit is megabytes.
_IN_MEMORY_BYTES = 256 * 1024


class Uploads:
    def __init__(self, settings: BundleSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._uploads = asyncio.Semaphore(settings.uploads)
        self._downloads = asyncio.Semaphore(settings.file_downloads)
        self._diffs = asyncio.Semaphore(settings.diffs)
        # Separate threads for each: a hostile archive takes up to a second, which must not delay other work.
        self._scan_threads = ThreadPoolExecutor(settings.scans, thread_name_prefix="scan")
        self._read_threads = ThreadPoolExecutor(settings.scans, thread_name_prefix="read")
        self._diff_threads = ThreadPoolExecutor(1, thread_name_prefix="diff")

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[IO[bytes]]:
        """A temporary file for one upload. A caller that waits for its turn has not sent the body yet, so it holds
        neither memory nor disk."""
        async with self._limited(self._uploads, "uploads"):
            with self._temporary_file() as spool:
                yield spool

    @asynccontextmanager
    async def unpacking(self) -> AsyncIterator[IO[bytes]]:
        """A temporary file for one file of a stored archive."""
        async with self._limited(self._downloads, "downloads"):
            with self._temporary_file() as spool:
                yield spool

    async def scan(self, archive: IO[bytes]) -> Bundle:
        archive.seek(0)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._scan_threads, read_bundle, archive, self._settings)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, work)

    async def compare(self, work: Callable[[], T]) -> T:
        """One at a time: a diff may take a second of processor time."""
        async with self._limited(self._diffs, "diffs"):
            return await asyncio.get_running_loop().run_in_executor(self._diff_threads, work)

    @asynccontextmanager
    async def _limited(self, limit: asyncio.Semaphore, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.upload_wait_seconds):
                await limit.acquire()
        except TimeoutError:
            raise errors.unavailable(f"Too many {what} are under way. Try again shortly.") from None
        try:
            yield
        finally:
            limit.release()

    def _temporary_file(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(self._folder))

    def close(self) -> None:
        for threads in (self._scan_threads, self._read_threads, self._diff_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def open_uploads(settings: BundleSettings, data_dir: Path) -> Uploads:
    folder = data_dir / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Uploads(settings, folder)
