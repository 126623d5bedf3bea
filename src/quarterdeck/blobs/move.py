"""Moves blobs from one store to another while both are in use: the server writes to the new store and reads from both.

A blob is deleted in the old store after it is stored in the new one, so it can be read at every moment. What is done
is seen in the stores themselves: a move that was interrupted continues when it is started again.
"""

import asyncio
import hashlib
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import IO

from msgspec import Struct

from quarterdeck.blobs import store
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import PIECE_BYTES, Blob, StoredBlob
from quarterdeck.blobs.service import open_spool
from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Database

# Called with the bytes done and the total.
Progress = Callable[[int, int], None]

_PARTS = 256


class MoveOutcome(Enum):
    MOVED = "moved"
    # In the new store before.
    PRESENT = "present"
    # Deleted by retention meanwhile.
    GONE = "gone"
    # In use, and in neither store.
    MISSING = "missing"
    # Its content does not match its name. It stays where it is.
    DAMAGED = "damaged"


class Moved(Struct):
    blobs: int = 0
    bytes: int = 0
    present: int = 0
    # In the old store, and unknown to the database. They stay there.
    unknown: int = 0
    # SHA-256.
    missing: list[str] = []
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
            self._count(one, await self._move(one, in_new=new.get(one.blob) == one.bytes, in_old=one.blob in old))
            progress(self._done_bytes)

    async def _move(self, stored: StoredBlob, *, in_new: bool, in_old: bool) -> MoveOutcome:
        blob = stored.blob
        if not in_new and in_old:
            if not await self._database.statement(lambda c: store.touch_stored(c, blob), repeatable=True):
                return MoveOutcome.GONE
            try:
                if not await self._copy(blob):
                    return MoveOutcome.DAMAGED
            except FileNotFoundError:
                # Another move has moved it.
                return await self._look_again(stored)
            await self._delete(blob)
            return MoveOutcome.MOVED
        if not in_new:
            return await self._look_again(stored)
        if in_old:
            await self._delete(blob)
        return MoveOutcome.PRESENT

    async def _look_again(self, stored: StoredBlob) -> MoveOutcome:
        """For a blob that was in neither store. A reference to it is added after it is stored, so one that is in use
        must be there now."""
        is_used = await self._database.read(lambda connection: store.is_used(connection, stored.blob))
        if await self._new.size(stored.blob.sha256, stored.blob.generation) == stored.bytes:
            return MoveOutcome.PRESENT
        return MoveOutcome.MISSING if is_used else MoveOutcome.GONE

    async def _copy(self, blob: Blob) -> bool:
        """False: the content has another SHA-256."""
        with open_spool(self._spool) as spool:
            if await asyncio.to_thread(self._read, blob, spool) != blob.sha256:
                return False
            await self._new.put(blob.sha256, blob.generation, spool)
        return True

    def _read(self, blob: Blob, spool: IO[bytes]) -> str:
        digest = hashlib.sha256()
        with self._old.open(blob.sha256, blob.generation) as source:
            while piece := source.read(PIECE_BYTES):
                digest.update(piece)
                spool.write(piece)
        return digest.hexdigest()

    async def _delete(self, blob: Blob) -> None:
        if not self._keep:
            await self._old.delete(blob.sha256, blob.generation)

    def _count(self, stored: StoredBlob, outcome: MoveOutcome) -> None:
        self._done_bytes += stored.bytes
        match outcome:
            case MoveOutcome.MOVED:
                self._moved.blobs += 1
                self._moved.bytes += stored.bytes
            case MoveOutcome.PRESENT:
                self._moved.present += 1
            case MoveOutcome.MISSING:
                self._moved.missing.append(stored.blob.sha256)
            case MoveOutcome.DAMAGED:
                self._moved.damaged.append(stored.blob.sha256)
            case MoveOutcome.GONE:
                pass


async def are_same(one: BlobStore, other: BlobStore, spool: Path) -> bool:
    """Whether two addresses name the same store, which no comparison of addresses tells."""
    sha256, generation = hashlib.sha256(b"").hexdigest(), new_id()
    with open_spool(spool) as empty:
        await one.put(sha256, generation, empty)
    try:
        return await other.size(sha256, generation) is not None
    finally:
        await one.delete(sha256, generation)
