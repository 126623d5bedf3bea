"""Archives under their SHA-256 and generation, in a folder or in an object store. The same name always holds the same
content."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import UUID

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from quarterdeck.core import errors
from quarterdeck.core.settings import SettingsError
from quarterdeck.skills.gunzip import PIECE_BYTES, Source

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_FILE_SCHEME = "file://"
# The library would try for minutes; a caller waits for the answer.
_CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=3),
    "timeout": timedelta(seconds=30),
    # Whoever names an http:// endpoint means it; the usual ones are https.
    "allow_http": True,
}
# Of one archive, 5 MiB each: what is under way is in memory, and the next that is read meanwhile.
_PARTS_AT_ONCE = 1
_RETRY: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


class BundleStore:
    def __init__(self, store: ObjectStore, folder: Path | None) -> None:
        self._store = store
        # Set for a local folder, to which we write ourselves: obstore does not bring what it wrote to the disk, and
        # holds up to twelve parts of 5 MiB of each archive in memory.
        self._folder = folder
        # Folders within it whose own names are on the disk.
        self._settled: set[Path] = set()

    async def put(self, sha256: str, generation: UUID, archive: IO[bytes]) -> None:
        """Returns once the archive would survive a power cut: the row that names it is committed after this."""
        name = _name(sha256, generation)
        archive.seek(0)
        if self._folder is not None:
            await asyncio.to_thread(self._write, archive, self._folder, name)
            return
        try:
            await obstore.put_async(self._store, name, archive, max_concurrency=_PARTS_AT_ONCE)
        except (BaseError, FileNotFoundError) as fault:
            # The second is a bucket that is not there.
            raise errors.unavailable() from fault

    def _write(self, archive: IO[bytes], folder: Path, name: str) -> None:
        """In place, without cutting off what is there: that can only be the same content or a part of it, left behind
        by a crash or just being written by another push. So whoever reads is not disturbed, and a crash leaves nothing
        that has no row."""
        path = folder / name
        if path.parent not in self._settled:
            path.parent.mkdir(exist_ok=True)
            _sync(folder)
            self._settled.add(path.parent)
        # Not by a file object, which asks four things of the system that nobody needs to know here.
        with _opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
            while piece := archive.read(PIECE_BYTES):
                written = 0
                while written < len(piece):
                    written += os.write(descriptor, piece[written:])
            os.fsync(descriptor)
        _sync(path.parent)

    async def read(self, sha256: str, generation: UUID, start: int, end: int) -> bytes:
        """One piece of an archive. Pieces are fetched one by one, so that a slow reader holds no connection to the
        store, nor more than a piece. FileNotFoundError when the archive is not there."""
        try:
            piece = await obstore.get_range_async(self._store, _name(sha256, generation), start=start, end=end)
        except BaseError as fault:
            raise errors.unavailable() from fault
        return bytes(piece)

    @contextmanager
    def open(self, sha256: str, generation: UUID) -> Iterator[Source]:
        """For a thread: reading blocks. FileNotFoundError when the archive is not there."""
        if self._folder is not None:
            with (self._folder / _name(sha256, generation)).open("rb") as archive:
                yield archive
            return
        try:
            yield _Download(obstore.get(self._store, _name(sha256, generation)).stream(PIECE_BYTES))
        except BaseError as fault:
            raise errors.unavailable() from fault

    async def delete(self, sha256: str, generation: UUID) -> None:
        try:
            await obstore.delete_async(self._store, _name(sha256, generation))
        except FileNotFoundError:
            # A sweep that was cut off after this step; the row goes now.
            return


class _Download:
    """A stream of pieces, read like a file. Holds one piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        taken, self._piece = self._piece[:size], self._piece[size:]
        return bytes(taken)


def open_bundle_store(url: str | None, data_dir: Path) -> BundleStore:
    if url is None or url.startswith(_FILE_SCHEME):
        folder = data_dir / "bundles" if url is None else Path(url.removeprefix(_FILE_SCHEME))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BundleStore(LocalStore(folder), folder)
    try:
        return BundleStore(from_url(url, client_options=_CLIENT, retry_config=_RETRY), None)
    except (BaseError, ValueError) as fault:
        reason = str(fault).partition("\n")[0]
        raise SettingsError(f"QUARTERDECK_BUNDLE_STORE_URL names no store: {reason}") from fault


def _name(sha256: str, generation: UUID) -> str:
    # Two characters of folder keep a directory of many bundles quick to list.
    return f"{sha256[:2]}/{sha256}.{generation.hex}"


def _sync(place: Path) -> None:
    with _opened(place, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
