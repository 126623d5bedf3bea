"""Stores contents as blobs, and finds them."""

import asyncio
from collections.abc import Hashable, Iterable, Mapping
from typing import IO
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection, Database

# Contents that are written at the same time, for one caller.
_PUTS_AT_ONCE = 8


class NewBlob(Struct, frozen=True):
    content: IO[bytes]
    bytes: int


async def put(database: Database, blobs: BlobStore, contents: Mapping[str, NewBlob], owner: Hashable = None) -> None:
    """Stores contents by their SHA-256. The caller refers to them in a transaction after this.

    The rows are touched first, so that the sweep leaves them alone. A content is written even if there is a row: a
    crash may have come between the row and the content."""
    if not contents:
        return

    async def touch(connection: Connection) -> dict[bytes, UUID]:
        sha256s = [bytes.fromhex(sha256) for sha256 in contents]
        return await store.touch(
            connection, sha256s, [new_id() for _ in contents], [one.bytes for one in contents.values()]
        )

    generations = await database.statement(touch, repeatable=True, owner=owner)
    places = asyncio.Semaphore(_PUTS_AT_ONCE)

    async def write(sha256: str, content: IO[bytes]) -> None:
        async with places:
            await blobs.put(sha256, generations[bytes.fromhex(sha256)], content)

    async with asyncio.TaskGroup() as group:
        for sha256, one in contents.items():
            group.create_task(write(sha256, one.content))


async def find(connection: Connection, sha256s: Iterable[str]) -> list[Blob]:
    """Those of the contents that are stored."""
    found = await store.generations(connection, [bytes.fromhex(sha256) for sha256 in sha256s])
    return [Blob(sha256.hex(), generation) for sha256, generation in found.items()]
