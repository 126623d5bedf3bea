"""Stores contents as blobs, and reads them."""

import tempfile
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping
from pathlib import Path
from typing import IO
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.core import errors
from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection, Database

# How much of a download is in memory at a time.
_PIECE_BYTES = 256 * 1024


class NewBlob(Struct, frozen=True):
    content: IO[bytes]
    bytes: int


async def put(database: Database, blobs: BlobStore, contents: Mapping[str, NewBlob], owner: Hashable = None) -> None:
    """Stores contents by their SHA-256. The caller refers to them in a transaction after this.

    The rows are touched first, so that the sweep leaves them alone. A content is written even if it has a row: a crash
    may have come between the row and the content."""
    if not contents:
        return

    async def touch(connection: Connection) -> list[Blob]:
        sha256s = [bytes.fromhex(sha256) for sha256 in contents]
        return await store.touch(
            connection, sha256s, [new_id() for _ in contents], [one.bytes for one in contents.values()]
        )

    touched = await database.statement(touch, repeatable=True, owner=owner)
    await blobs.put_all({blob: contents[blob.sha256].content for blob in touched})


async def find(connection: Connection, sha256s: Iterable[str]) -> dict[str, Blob]:
    """The blobs that have a row, by SHA-256 in hex."""
    found = await store.find(connection, [bytes.fromhex(sha256) for sha256 in sha256s])
    return {blob.sha256: blob for blob in found}


async def pieces(blobs: BlobStore, blob: Blob, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """The bytes `start` to `end` of a blob that a row refers to. A reader holds one piece, however slow it is."""
    for at in range(start, end, _PIECE_BYTES):
        try:
            piece = await blobs.read(blob.sha256, blob.generation, at, min(at + _PIECE_BYTES, end))
        except FileNotFoundError as fault:
            raise errors.internal() from fault
        yield piece


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

    async def find_condemned(connection: Connection) -> list[tuple[bytes, UUID]]:
        return await store.condemned(connection, _SWEEP_BATCH)

    while await database.transaction(condemn, repeatable=True):
        pass
    removed = 0
    while condemned := await database.read(find_condemned):
        for sha256, generation in condemned:
            await blobs.delete(sha256.hex(), generation)

            async def forget(connection: Connection, sha256: bytes = sha256, generation: UUID = generation) -> None:
                await store.forget(connection, sha256, generation)

            await database.transaction(forget, repeatable=True)
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
