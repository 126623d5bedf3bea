"""Stores blobs by SHA-256 and generation, in a folder or an object store. A name always has the same content."""

import asyncio
import ctypes
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import UUID

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from quarterdeck.blobs.model import PIECE_BYTES, Blob
from quarterdeck.core import errors
from quarterdeck.core.settings import BlobSettings, SettingsError

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ClientConfig, RetryConfig

_FILE_SCHEME = "file://"
# As `_name` makes them.
_NAME = re.compile(r"[0-9a-f]{2}/(?P<sha256>[0-9a-f]{64})\.(?P<generation>[0-9a-f]{32})")
# The library would try for minutes while a caller waits.
_CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=3),
    "timeout": timedelta(seconds=30),
    # For endpoints that are configured with http://.
    "allow_http": True,
}
# Parts of 5 MiB, of one blob, that are uploaded at a time. They are held in memory.
_PARTS_AT_ONCE = 1
# Blobs that are uploaded at the same time, for one caller.
_UPLOADS_AT_ONCE = 8
# So many blobs are brought to the disk by one syncfs, which is many times faster than fsync of each file and folder.
# It also waits for what others have written to this file system.
_SYNC_AT_ONCE = 32
_libc = ctypes.CDLL(None, use_errno=True)
_RETRY: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


class BlobStore:
    """With a fallback, blobs that are not here are looked for there. Blobs are written here only."""

    def __init__(self, store: ObjectStore, folder: Path | None, fallback: "BlobStore | None" = None) -> None:
        self._store = store
        self._fallback = fallback
        # Where a blob is looked for, in this order. Here twice: it may be moved here between the first two looks.
        self._stores = [self] if fallback is None else [self, fallback, self]
        # Set for a local folder. We write to it without obstore, which does not call fsync and holds up to twelve parts
        # of 5 MiB of each blob in memory.
        self._folder = folder
        # Subfolders whose directory entries are on the disk.
        self._synced: set[str] = set()

    async def put_all(self, contents: Mapping[Blob, IO[bytes]]) -> None:
        """Returns when the contents would survive a power cut. The rows that name them are committed after this. After
        an error, some of them may be stored."""
        for content in contents.values():
            content.seek(0)
        if self._folder is not None:
            await asyncio.to_thread(self._write_all, contents, str(self._folder))
            return
        slots = asyncio.Semaphore(_UPLOADS_AT_ONCE)

        async def upload(blob: Blob, content: IO[bytes]) -> None:
            async with slots:
                await obstore.put_async(self._store, _name(blob), content, max_concurrency=_PARTS_AT_ONCE)

        # Not a TaskGroup, which would hide the error in a group. All have ended before the caller closes the contents.
        for result in await asyncio.gather(*(upload(*one) for one in contents.items()), return_exceptions=True):
            if isinstance(result, (BaseError, FileNotFoundError)):
                # FileNotFoundError: there is no such bucket.
                raise errors.unavailable() from result
            if result is not None:
                raise result

    def _write_all(self, contents: Mapping[Blob, IO[bytes]], folder: str) -> None:
        """Writes in place, without truncating. An existing file has the same content or the start of it: a crash left
        it, or another push is writing it. So readers are not disturbed, and a crash leaves no file without a row."""
        parents = {f"{folder}/{blob.sha256[:2]}" for blob in contents}
        if unsynced := parents - self._synced:
            for parent in unsynced:
                Path(parent).mkdir(exist_ok=True)
            _sync(folder)
            self._synced |= unsynced
        at_once = len(contents) >= _SYNC_AT_ONCE and hasattr(_libc, "syncfs")
        # Opened first: it reports errors since then.
        with _opened(folder) as descriptor:
            for blob, content in contents.items():
                path = f"{folder}/{_name(blob)}"
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb") as file:
                    shutil.copyfileobj(content, file, PIECE_BYTES)
                    file.flush()
                    if not at_once:
                        os.fsync(file.fileno())
            if at_once:
                _sync_all(descriptor)
                return
        for parent in parents:
            _sync(parent)

    async def read(self, blob: Blob, start: int, end: int) -> bytes:
        """One piece of a blob. Pieces are fetched one by one, so that a slow reader holds one piece and no
        connection to the store. Raises FileNotFoundError if there is no such blob."""
        name = _name(blob)
        for store in self._stores[:-1]:
            with suppress(FileNotFoundError):
                return await store._read(name, start, end)
        return await self._stores[-1]._read(name, start, end)

    async def _read(self, name: str, start: int, end: int) -> bytes:
        with _reported():
            return bytes(await obstore.get_range_async(self._store, name, start=start, end=end))

    def pieces(self, blob: Blob) -> Iterator[bytes]:
        """The whole blob. Reading blocks, so use it in a thread. Raises FileNotFoundError if there is no such blob."""
        name = _name(blob)
        for store in self._stores[:-1]:
            with suppress(FileNotFoundError):
                found = store._open(name)
                break
        else:
            found = self._stores[-1]._open(name)
        yield from found

    def _open(self, name: str) -> Iterator[bytes]:
        if self._folder is not None:
            # Text instead of a Path, which takes longer than opening a small file.
            return _file_pieces(open(f"{self._folder}/{name}", "rb"))
        with _reported():
            return _downloaded_pieces(obstore.get(self._store, name))

    @property
    def is_remote(self) -> bool:
        """Whether blobs come over a network, so that several are fetched at a time."""
        return self._folder is None

    async def delete(self, blob: Blob) -> None:
        # An earlier deletion may have been interrupted after this step, or the blob is only in one of the stores.
        with _reported(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, _name(blob))
        if self._fallback is not None:
            await self._fallback.delete(blob)

    async def size(self, blob: Blob) -> int | None:
        """In bytes; None if there is no such blob here. The fallback is not asked."""
        with _reported(), suppress(FileNotFoundError):
            return (await obstore.head_async(self._store, _name(blob)))["size"]
        return None

    async def sizes(self, first_byte: int) -> dict[Blob, int]:
        """All blobs here whose SHA-256 has this first byte, with their sizes. The fallback is not asked."""
        with _reported():
            found = await obstore.list(self._store, f"{first_byte:02x}").collect_async()
        named = ((_NAME.fullmatch(one["path"]), one["size"]) for one in found)
        return {Blob(name["sha256"], UUID(name["generation"])): size for name, size in named if name is not None}


def _file_pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _downloaded_pieces(download: "GetResult") -> Iterator[bytes]:
    with _reported():
        for piece in download.stream(PIECE_BYTES):
            yield bytes(piece)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except BaseError as fault:
        raise errors.unavailable() from fault


def open_blob_store(settings: BlobSettings, data_dir: Path) -> BlobStore:
    fallback = None if settings.fallback_store_url is None else open_fallback_store(settings.fallback_store_url)
    if settings.store_url is None:
        return _in_folder(data_dir / "blobs", fallback)
    return _open("STORE_URL", settings.store_url, fallback)


def open_fallback_store(url: str) -> BlobStore:
    return _open("FALLBACK_STORE_URL", url, None)


def _open(setting: str, url: str, fallback: BlobStore | None) -> BlobStore:
    if url.startswith(_FILE_SCHEME):
        return _in_folder(Path(url.removeprefix(_FILE_SCHEME)), fallback)
    try:
        return BlobStore(from_url(url, client_options=_CLIENT, retry_config=_RETRY), None, fallback)
    except (BaseError, ValueError) as fault:
        reason = str(fault).partition("\n")[0]
        raise SettingsError(f"QUARTERDECK_BLOB_{setting} names no store: {reason}") from fault


def _in_folder(folder: Path, fallback: BlobStore | None) -> BlobStore:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return BlobStore(LocalStore(folder), folder, fallback)


def _name(blob: Blob) -> str:
    # Subfolders by two characters, so that no directory has too many files.
    return f"{blob.sha256[:2]}/{blob.sha256}.{blob.generation.hex}"


def _sync(folder: str) -> None:
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


def _sync_all(folder: int) -> None:
    """The whole file system that the folder is in."""
    if _libc.syncfs(folder) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
