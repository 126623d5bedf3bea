"""Stored blocks besides reading: found when the blob store is moved, deleted when no version uses them."""

from uuid import UUID

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob, sha256_range
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import blocks_store

_SWEEP_BATCH = 100


async def find_stored_blocks(connection: Connection, first_byte: int) -> list[Blob]:
    """Of all archives whose SHA-256 has this first byte."""
    return await blocks_store.stored_between(connection, *sha256_range(first_byte))


async def sweep_blocks(database: Database, blobs: BlobStore, orphan_hours: int) -> None:
    """The row is deleted after the blocks: without it, nothing would say that they are there."""

    async def find(connection: Connection) -> list[tuple[UUID, bytes]]:
        return await blocks_store.unused(connection, orphan_hours, _SWEEP_BATCH)

    while unused := await database.read(find):
        for blocks_id, sha256 in unused:
            await blobs.delete(sha256.hex(), blocks_id)

            async def forget(connection: Connection, blocks_id: UUID = blocks_id) -> None:
                await blocks_store.forget(connection, blocks_id)

            await database.statement(forget, repeatable=True)
