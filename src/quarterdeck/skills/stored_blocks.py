"""The blocks in the blob store, for those who move it."""

from quarterdeck.blobs.model import Blob, sha256_range
from quarterdeck.db.database import Connection
from quarterdeck.skills import blocks_store


async def find_stored_blocks(connection: Connection, first_byte: int) -> list[Blob]:
    """Of all archives whose SHA-256 has this first byte."""
    return await blocks_store.stored_between(connection, *sha256_range(first_byte))
