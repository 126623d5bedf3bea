"""Deletes stored archives and blocks that no version uses."""

from uuid import UUID

from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import blocks_store, store
from quarterdeck.skills.bundle_store import BundleStore

_SWEEP_BATCH = 100


async def sweep_bundles(database: Database, bundles: BundleStore, orphan_hours: int) -> int:
    """Delete archives that no version refers to and no push has touched for `orphan_hours`. The row is deleted before
    the archive, in a transaction of its own, so that no transaction waits for the bundle store."""

    async def condemn(connection: Connection) -> int:
        found = await store.old_bundles(connection, orphan_hours, _SWEEP_BATCH)
        condemned = [one for one in found if await store.lock_unused_bundle(connection, one, orphan_hours)]
        for sha256 in condemned:
            await store.condemn_bundle(connection, sha256)
        return len(condemned)

    async def find_condemned(connection: Connection) -> list[tuple[bytes, UUID]]:
        return await store.condemned_bundles(connection, _SWEEP_BATCH)

    while await database.transaction(condemn, repeatable=True):
        pass
    removed = 0
    while condemned := await database.read(find_condemned):
        for sha256, generation in condemned:
            await bundles.delete(sha256.hex(), generation)

            async def forget(connection: Connection, sha256: bytes = sha256, generation: UUID = generation) -> None:
                await store.forget_bundle(connection, sha256, generation)

            await database.transaction(forget, repeatable=True)
        removed += len(condemned)
    await _sweep_blocks(database, bundles, orphan_hours)
    return removed


async def _sweep_blocks(database: Database, bundles: BundleStore, orphan_hours: int) -> None:
    """The row is deleted after the blocks: without it, nothing would say that they are there."""

    async def find(connection: Connection) -> list[tuple[UUID, bytes]]:
        return await blocks_store.unused(connection, orphan_hours, _SWEEP_BATCH)

    while unused := await database.read(find):
        for blocks_id, sha256 in unused:
            await bundles.delete(sha256.hex(), blocks_id)

            async def forget(connection: Connection, blocks_id: UUID = blocks_id) -> None:
                await blocks_store.forget(connection, blocks_id)

            await database.statement(forget, repeatable=True)
