"""Moves blobs from one store to another while both are in use: the server writes to the new store and reads from both.

A blob is deleted in the old store after it is stored in the new one, so it can be read at every moment. What is done
is seen in the stores themselves: a move that was interrupted continues when it is started again.
"""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from msgspec import Struct

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob, StoredBlob
from quarterdeck.blobs.service import open_spool
from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Database

# Called with the bytes done and the total.
Progress = Callable[[int, int], None]

_PARTS = 256


class Moved(Struct):
    blobs: int = 0
    bytes: int = 0
    # In the new store before.
    present: int = 0
    # In the old store, and unknown to the database. They stay there.
    unknown: int = 0
    # SHA-256 of blobs that are in use, and in neither store.
    missing: list[str] = []
    # SHA-256 of blobs with another content. They stay where they are.
    damaged: list[str] = []


class Move:
    """`spool` is a folder for temporary files. `keep`: nothing is deleted in the old store."""

    def __init__(self, database: Database, old: BlobStore, new: BlobStore, spool: Path, *, keep: bool) -> None:
        self._database = database
        self._old = old
        self._new = new
        self._spool = spool
        self._keep = keep
        self._moved = Moved()
        self._done_bytes = 0

    async def run(self, concurrency: int, progress: Progress) -> Moved:
        """Up to `concurrency` blobs are copied at the same time."""
        total = await self._database.read(store.total_bytes)
        slots = asyncio.Semaphore(concurrency)

        async def move(first_byte: int) -> None:
            async with slots:
                await self._move_part(first_byte, lambda done: progress(done, max(done, total)))

        tasks = [asyncio.create_task(move(first_byte)) for first_byte in range(_PARTS)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._moved

    async def _move_part(self, first_byte: int, progress: Callable[[int], None]) -> None:
        # The stores before the rows: whatever is in a store has had its row before.
        new, old = await self._new.sizes(first_byte), await self._old.sizes(first_byte)
        stored = await self._database.read(lambda connection: store.starting_with(connection, first_byte))
        self._moved.unknown += len(old.keys() - {one.blob for one in stored})
        for one in stored:
            await self._move(one, in_new=new.get(one.blob) == one.bytes, in_old=one.blob in old)
            self._done_bytes += one.bytes
            progress(self._done_bytes)

    async def _move(self, stored: StoredBlob, *, in_new: bool, in_old: bool) -> None:
        blob = stored.blob
        if in_new:
            self._moved.present += 1
            if in_old:
                await self._delete(blob)
        elif not in_old:
            await self._look_again(stored)
        # Otherwise retention has deleted it meanwhile.
        elif await self._database.statement(lambda c: store.touch_stored(c, blob), repeatable=True):
            try:
                await self._copy(stored)
            except FileNotFoundError:
                # Another move has moved it.
                await self._look_again(stored)

    async def _look_again(self, stored: StoredBlob) -> None:
        """For a blob that was in neither store. A reference to it is added after it is stored, so one that is in use
        must be there now."""
        is_used = await self._database.read(lambda connection: store.is_used(connection, stored.blob))
        if await self._new.size(stored.blob) == stored.bytes:
            self._moved.present += 1
        elif is_used:
            self._moved.missing.append(stored.blob.sha256)

    async def _copy(self, stored: StoredBlob) -> None:
        blob = stored.blob
        with open_spool(self._spool) as spool:
            if await asyncio.to_thread(self._read, blob, spool) != blob.sha256:
                self._moved.damaged.append(blob.sha256)
                return
            await self._new.put_all({blob: spool})
        await self._delete(blob)
        self._moved.blobs += 1
        self._moved.bytes += stored.bytes

    def _read(self, blob: Blob, spool: IO[bytes]) -> str:
        digest = hashlib.sha256()
        for piece in self._old.pieces(blob):
            digest.update(piece)
            spool.write(piece)
        return digest.hexdigest()

    async def _delete(self, blob: Blob) -> None:
        if not self._keep:
            await self._old.delete(blob)


async def are_same(one: BlobStore, other: BlobStore, spool: Path) -> bool:
    """Whether two addresses name the same store, which no comparison of addresses tells."""
    blob = Blob(hashlib.sha256(b"").hexdigest(), new_id())
    with open_spool(spool) as empty:
        await one.put_all({blob: empty})
    try:
        return await other.size(blob) is not None
    finally:
        await one.delete(blob)
