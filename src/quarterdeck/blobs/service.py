"""Stores contents as blobs, and reads them."""

from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping
from typing import IO

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
