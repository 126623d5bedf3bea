"""Stores contents as blobs, and reads them."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from msgspec import Struct

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob, DamagedBlob
from quarterdeck.core import errors
from quarterdeck.db.database import Connection, Database

# How much of a download is in memory at a time.
_PIECE_BYTES = 256 * 1024
# So that many rows do not keep the event loop busy.
_FIND_BATCH = 1_000
# Blobs that are read at the same time, for one caller.
_READS_AT_ONCE = 8


class NewBlob(Struct, frozen=True):
    content: IO[bytes]
    bytes: int


async def put(database: Database, blobs: BlobStore, contents: Mapping[str, NewBlob], owner: Hashable = None) -> None:
    """Stores contents by their SHA-256. The caller refers to them in a transaction after this.

    The rows are touched first, so that the sweep leaves them alone. A content is written even if it has a row: a crash
    may have come between the row and the content."""
    if not contents:
        return
    sizes = {sha256: one.bytes for sha256, one in contents.items()}
    touched = await database.statement(lambda one: store.touch(one, sizes), repeatable=True, owner=owner)
    await blobs.put_all({blob: contents[blob.sha256].content for blob in touched})


async def find(connection: Connection, sha256s: Sequence[str]) -> dict[str, Blob]:
    """The blobs that have a row, by SHA-256 in hex."""
    found: dict[str, Blob] = {}
    for start in range(0, len(sha256s), _FIND_BATCH):
        batch = await store.find(connection, sha256s[start : start + _FIND_BATCH])
        found |= {blob.sha256: blob for blob in batch}
    return found


async def pieces(blobs: BlobStore, blob: Blob, size: int, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """The bytes `start` to `end` of a blob of `size` bytes that a row refers to. A reader holds one piece, however slow
    it is. The last piece of a whole blob is returned only if the SHA-256 is right."""
    digest = hashlib.sha256() if end - start == size else None
    for at in range(start, end, _PIECE_BYTES):
        stop = min(at + _PIECE_BYTES, end)
        try:
            piece = await blobs.read(blob, at, stop)
        except FileNotFoundError as fault:
            raise errors.internal() from fault
        if digest is not None:
            digest.update(piece)
            if stop == end and digest.hexdigest() != blob.sha256:
                raise errors.internal() from DamagedBlob(blob.sha256)
        yield piece


async def read_all(
    database: Database, blobs: BlobStore, sizes: Mapping[str, int], owner: Hashable = None
) -> dict[str, bytes]:
    """The contents of whole blobs that rows refer to, by SHA-256. They are in memory together."""
    found = await database.read(lambda connection: find(connection, list(sizes)), owner=owner)
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(sha256: str, size: int) -> bytes:
        async with slots:
            return b"".join([piece async for piece in pieces(blobs, found[sha256], size, 0, size)])

    contents = await asyncio.gather(*(read(sha256, size) for sha256, size in sizes.items()))
    return dict(zip(sizes, contents, strict=True))


# Deletes blobs that nothing refers to.

_SWEEP_BATCH = 100


async def sweep_blobs(database: Database, blobs: BlobStore, orphan_hours: int) -> int:
    """Deletes blobs that no row refers to and nobody has touched for `orphan_hours`. The row is deleted before the
    content, in a transaction of its own, so that no transaction waits for the store."""

    async def condemn(connection: Connection) -> int:
        found = await store.old(connection, orphan_hours, _SWEEP_BATCH)
        condemned = [one for one in found if await store.lock_unused(connection, one, orphan_hours)]
        for sha256 in condemned:
            await store.condemn(connection, sha256)
        return len(condemned)

    while await database.transaction(condemn, repeatable=True):
        pass
    removed = 0
    while condemned := await database.read(lambda one: store.condemned(one, _SWEEP_BATCH)):
        for blob in condemned:
            await blobs.delete(blob)
            await database.statement(partial(store.forget, blob=blob), repeatable=True)
        removed += len(condemned)
    return removed


# Temporary files, in memory while they are small. They have no name, so a crash leaves none.

# Larger ones are on disk. Most blobs are a few kilobytes; the limit is megabytes.
_IN_MEMORY_BYTES = 256 * 1024


def open_spool(folder: Path) -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(folder))


def spool_folder(data_dir: Path) -> Path:
    folder = data_dir / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
