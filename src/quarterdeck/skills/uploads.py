"""Room for uploads: how many at once, on which disk, and on how many threads they are read."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from quarterdeck import errors
from quarterdeck.settings import BundleSettings
from quarterdeck.skills.bundle import read_bundle
from quarterdeck.skills.model import Bundle

# Larger archives are spooled to a file: most bundles are a few kilobytes, the limit is megabytes.
_IN_MEMORY_BYTES = 256 * 1024


class Uploads:
    def __init__(self, settings: BundleSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._places = asyncio.Semaphore(settings.uploads)
        # Threads of their own: a hostile archive costs a second of one, and not of what else a process does in threads.
        self._scanners = ThreadPoolExecutor(settings.scans, thread_name_prefix="scan")

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[IO[bytes]]:
        """A place among the uploads and a file to put one in. Whoever waits for a place has not sent its body, so it
        holds neither memory nor disk."""
        try:
            async with asyncio.timeout(self._settings.upload_wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise errors.unavailable("Too many uploads are under way. Try again shortly.") from None
        try:
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(self._folder)) as spool:
                yield spool
        finally:
            self._places.release()

    async def scan(self, archive: IO[bytes]) -> Bundle:
        archive.seek(0)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._scanners, read_bundle, archive, self._settings)

    def close(self) -> None:
        self._scanners.shutdown(wait=False, cancel_futures=True)


def open_uploads(settings: BundleSettings, data_dir: Path) -> Uploads:
    folder = data_dir / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Uploads(settings, folder)
