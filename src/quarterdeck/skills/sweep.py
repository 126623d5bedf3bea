"""Deletes blocks that no version uses."""

from uuid import UUID

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import blocks_store

_SWEEP_BATCH = 100


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
