"""The rows of bundles that are stored in blocks."""

from uuid import UUID

from quarterdeck.blobs.model import Blob
from quarterdeck.db.database import Connection

_FIND = """
SELECT id, block_index FROM bundle_blocks
WHERE bundle_sha256 = %s AND bundle_generation = %s AND block_index IS NOT NULL
ORDER BY id LIMIT 1
"""
_ADD = """
INSERT INTO bundle_blocks (id, bundle_sha256, bundle_generation) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING
"""
_FINISH = "UPDATE bundle_blocks SET block_index = %s WHERE id = %s"
# Blocks that a crash left unfinished, and those of deleted archives.
_UNUSED = """
SELECT k.id, k.bundle_sha256 FROM bundle_blocks k
WHERE (k.block_index IS NULL AND k.created_at < clock_timestamp() - make_interval(hours => %s))
   OR NOT EXISTS (SELECT FROM blobs b WHERE b.sha256 = k.bundle_sha256 AND b.generation = k.bundle_generation)
LIMIT %s
"""
_BETWEEN = """
SELECT id, bundle_sha256 FROM bundle_blocks WHERE bundle_sha256 BETWEEN %s AND %s AND block_index IS NOT NULL
"""
_FORGET = "DELETE FROM bundle_blocks WHERE id = %s"


async def find(connection: Connection, archive: Blob) -> tuple[UUID, bytes] | None:
    """The name of the stored blocks and their encoded index; None if they are not stored, or not completely."""
    values = (bytes.fromhex(archive.sha256), archive.generation)
    row = await (await connection.execute(_FIND, values)).fetchone()
    return None if row is None else (row[0], row[1])


async def add(connection: Connection, blocks_id: UUID, archive: Blob) -> None:
    """Before the blocks are stored, so that the sweep finds what a crash leaves."""
    await connection.execute(_ADD, (blocks_id, bytes.fromhex(archive.sha256), archive.generation))


async def finish(connection: Connection, blocks_id: UUID, block_index: bytes) -> bool:
    """After the blocks are stored. False: the sweep was faster."""
    return (await connection.execute(_FINISH, (block_index, blocks_id))).rowcount == 1


async def unused(connection: Connection, hours: int, count: int) -> list[tuple[UUID, bytes]]:
    """Their names and the SHA-256 of their archives."""
    rows = await (await connection.execute(_UNUSED, (hours, count))).fetchall()
    return [(row[0], row[1]) for row in rows]


async def stored_between(connection: Connection, first: bytes, last: bytes) -> list[Blob]:
    """The names of complete blocks of the archives with these SHA-256."""
    rows = await (await connection.execute(_BETWEEN, (first, last))).fetchall()
    return [Blob(sha256.hex(), blocks_id) for blocks_id, sha256 in rows]


async def forget(connection: Connection, blocks_id: UUID) -> None:
    await connection.execute(_FORGET, (blocks_id,))
