"""Room for archives under way, in and out: how many at once, on which disk, and on how many threads they are read."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TypeVar

from msgspec.structs import replace

from quarterdeck.core import errors
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.bundle import read_bundle
from quarterdeck.skills.model import Bundle, BundleError

T = TypeVar("T")

# What is larger is spooled to a file: most bundles are a few kilobytes, the limit is megabytes.
_IN_MEMORY_BYTES = 256 * 1024

# What is read on the event loop, in a fifth of a millisecond: handing it to a thread and back takes twice that, and the
# interpreter's lock would hold up the loop all the same.
_AT_ONCE = BundleSettings(
    request_bytes=16 * 1024,
    unpacked_bytes=128 * 1024,
    entries=64,
    frontmatter_bytes=2 * 1024,
    all_paths_bytes=4 * 1024,
)


class Uploads:
    def __init__(self, settings: BundleSettings, folder: Path) -> None:
        self._settings = settings
        self._at_once = _smaller_of(settings, _AT_ONCE)
        self._folder = folder
        self._places = asyncio.Semaphore(settings.uploads)
        # Apart from uploads: a reader may take its time.
        self._reading_places = asyncio.Semaphore(settings.file_downloads)
        # Threads of their own: a hostile archive costs a second of one, and not of what else a process does in threads.
        self._scanners = ThreadPoolExecutor(settings.scans, thread_name_prefix="scan")
        # And apart from those who push: what reads stored archives waits for its like.
        self._readers = ThreadPoolExecutor(settings.scans, thread_name_prefix="read")
        self._comparing_places = asyncio.Semaphore(settings.diffs)
        self._comparers = ThreadPoolExecutor(1, thread_name_prefix="diff")

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[IO[bytes]]:
        """A place among the uploads and a file to put one in. Whoever waits for a place has not sent its body, so it
        holds neither memory nor disk."""
        async with self._place(self._places, "uploads"), self._file() as spool:
            yield spool

    @asynccontextmanager
    async def unpacking(self) -> AsyncIterator[IO[bytes]]:
        """A place among those who read files of stored archives, and a file to unpack one into."""
        async with self._place(self._reading_places, "downloads"), self._file() as spool:
            yield spool

    async def scan(self, archive: IO[bytes]) -> Bundle:
        """What is written to `archive`. The little that most bundles are is read at once."""
        if archive.tell() <= _AT_ONCE.request_bytes:
            archive.seek(0)
            try:
                return read_bundle(archive, self._at_once)
            except BundleError:
                # It may be too much for here only: its limits are told apart where there is time for all of it.
                pass
        archive.seek(0)
        return await asyncio.get_running_loop().run_in_executor(self._scanners, read_bundle, archive, self._settings)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def compare(self, work: Callable[[], T]) -> T:
        """One at a time: a diff may cost a second of a processor."""
        async with self._place(self._comparing_places, "diffs"):
            return await asyncio.get_running_loop().run_in_executor(self._comparers, work)

    @asynccontextmanager
    async def _place(self, places: asyncio.Semaphore, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.upload_wait_seconds):
                await places.acquire()
        except TimeoutError:
            raise errors.unavailable(f"Too many {what} are under way. Try again shortly.") from None
        try:
            yield
        finally:
            places.release()

    @asynccontextmanager
    async def _file(self) -> AsyncIterator[IO[bytes]]:
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(self._folder)) as spool:
            yield spool

    def close(self) -> None:
        for threads in (self._scanners, self._readers, self._comparers):
            threads.shutdown(wait=False, cancel_futures=True)


def _smaller_of(one: BundleSettings, other: BundleSettings) -> BundleSettings:
    names = ("request_bytes", "unpacked_bytes", "entries", "frontmatter_bytes", "all_paths_bytes")
    return replace(one, **{name: min(getattr(one, name), getattr(other, name)) for name in names})


def open_uploads(settings: BundleSettings, data_dir: Path) -> Uploads:
    folder = data_dir / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Uploads(settings, folder)
