"""Deletes blobs that nothing refers to."""

from uuid import UUID

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.db.database import Connection, Database

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
