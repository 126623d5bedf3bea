"""Reads files of stored bundles, whole or in part.

A small bundle is unpacked for each read. A larger one is stored a second time, in blocks, when one of its files is read
for the first time. From then on a read unpacks only the blocks in which the file lies.

A stored bundle was checked when it was pushed. If it cannot be read now, or does not match its manifest, the error is
ours and not the caller's.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import IO, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob, sha256_range
from quarterdeck.blobs.service import open_spool, spool_folder
from quarterdeck.core import errors
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import BundleSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import blocks_store
from quarterdeck.skills.archive import Take, take_all, take_files
from quarterdeck.skills.blocks import BLOCK_BYTES, BlockIndex, BlockWriter, unpack_block
from quarterdeck.skills.model import BundleError, SkillFile, StoredBundle
from quarterdeck.skills.uploads import SharedThreads

T = TypeVar("T")

# An archive that was accepted once must not fail because the processor is slower today.
_TIME_FACTOR = 10


class _Blocks(Struct, frozen=True):
    # Part of their name in the blob store.
    id: UUID
    index: BlockIndex


class BundleFiles:
    def __init__(
        self, database: Database, blob_store: BlobStore, settings: BundleSettings, data_dir: Path, read_threads: int
    ) -> None:
        self._database = database
        self._blob_store = blob_store
        self._settings = settings
        more_seconds = settings.unpacking_seconds * _TIME_FACTOR
        self._limits = msgspec.structs.replace(settings, unpacking_seconds=more_seconds)
        self._data_dir = data_dir
        self._read_threads = SharedThreads(read_threads, settings.per_workspace(read_threads), "downloads")
        # A thread of its own: a build takes up to a few seconds, which must not delay reads.
        self._build_thread = SharedThreads(1, 1, "builds")
        self._build_slots = Slots(settings.block_builds, settings.per_workspace(settings.block_builds))
        # Builds under way, by archive: all who want to read the bundle wait for the same one.
        self._builds: dict[Blob, asyncio.Task[_Blocks]] = {}

    async def pieces(self, bundle: StoredBundle, file: SkillFile, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes `start` to `end` of one file. A reader holds one piece, however long it takes to read it. The last
        piece of a whole file is not returned unless the SHA-256 is right."""
        digest = hashlib.sha256() if end - start == file.bytes else None
        async with aclosing(self._pieces(bundle, file, start, end)) as pieces:
            async for piece in pieces:
                start += len(piece)
                if digest is not None:
                    digest.update(piece)
                    if start == end and digest.hexdigest() != file.sha256:
                        raise errors.internal() from _damaged(file)
                yield piece

    async def _pieces(self, bundle: StoredBundle, file: SkillFile, start: int, end: int) -> AsyncGenerator[bytes, None]:
        blocks = await self._blocks(bundle)
        if blocks is None:
            for at in range(start, end, BLOCK_BYTES):
                # Unpacked again for each piece, which is cheap for a small bundle.
                content = await self._unpack(bundle, [file])
                yield content.pop(file.path)[at : min(at + BLOCK_BYTES, end)]
            return
        offset = blocks.index.starts[bundle.files.index(file)]
        at, stop = offset + start, offset + end
        while at < stop:
            block, skipped = divmod(at, BLOCK_BYTES)
            piece = (await self._read_block(bundle, blocks, block))[skipped : skipped + stop - at]
            yield piece
            at += len(piece)

    async def read_files(self, bundle: StoredBundle, files: Collection[SkillFile]) -> dict[str, bytes]:
        """Whole files, by path. They are in memory together."""
        blocks = await self._blocks(bundle) if files else None
        if blocks is None:
            return await self._unpack(bundle, files) if files else {}
        starts = {file.path: start for file, start in zip(bundle.files, blocks.index.starts, strict=True)}
        found: dict[str, bytes] = {}
        read: tuple[int, bytes] | None = None
        for file in sorted(files, key=lambda file: starts[file.path]):
            content, at = bytearray(), starts[file.path]
            while len(content) < file.bytes:
                block, skipped = divmod(at + len(content), BLOCK_BYTES)
                # Small files that are neighbours lie in the same block.
                if read is None or read[0] != block:
                    read = block, await self._read_block(bundle, blocks, block)
                content += read[1][skipped : skipped + file.bytes - len(content)]
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise errors.internal() from _damaged(file)
            found[file.path] = bytes(content)
        return found

    async def _read_block(self, bundle: StoredBundle, blocks: _Blocks, block: int) -> bytes:
        try:
            stored = await self._blob_store.read(bundle.archive.sha256, blocks.id, *blocks.index.span(block))
            return await self._in_thread(bundle, lambda: unpack_block(blocks.index, block, stored))
        except (BundleError, FileNotFoundError) as fault:
            raise errors.internal() from fault

    async def _unpack(self, bundle: StoredBundle, files: Collection[SkillFile]) -> dict[str, bytes]:
        contents = {file.path: bytearray() for file in files}
        await self.unpack(bundle, files, {path: content.extend for path, content in contents.items()})
        return {path: bytes(content) for path, content in contents.items()}

    async def unpack(self, bundle: StoredBundle, files: Collection[SkillFile], takers: Mapping[str, Take]) -> None:
        """Passes whole files to their takers, in a thread. After an exception, what they have got must not be used."""

        def unpack() -> dict[str, SkillFile]:
            with self._blob_store.open(bundle.archive.sha256, bundle.archive.generation) as source:
                return take_files(source, self._limits, takers)

        try:
            found = await self._in_thread(bundle, unpack)
        except (BundleError, FileNotFoundError) as fault:
            raise errors.internal() from fault
        for file in files:
            if found.get(file.path) != file:
                raise errors.internal() from _damaged(file)

    async def _in_thread(self, bundle: StoredBundle, work: Callable[[], T]) -> T:
        return await self._read_threads.run(bundle.workspace_id, self._settings.upload_wait_seconds, work)

    async def _blocks(self, bundle: StoredBundle) -> _Blocks | None:
        """None for a small bundle, which has none."""
        if sum(file.bytes for file in bundle.files) <= self._settings.direct_read_bytes:
            return None

        async def find(connection: Connection) -> tuple[UUID, bytes] | None:
            return await blocks_store.find(connection, bundle.archive)

        found = await self._database.read(find, owner=bundle.workspace_id)
        if found is not None:
            return _Blocks(found[0], msgspec.msgpack.decode(found[1], type=BlockIndex))
        build = self._builds.get(bundle.archive)
        if build is None:
            build = self._builds[bundle.archive] = asyncio.create_task(self._build(bundle))
            build.add_done_callback(lambda done: self._forget_build(bundle, done))
        # A reader that leaves does not end the build that others wait for.
        return await asyncio.shield(build)

    def _forget_build(self, bundle: StoredBundle, build: "asyncio.Task[_Blocks]") -> None:
        del self._builds[bundle.archive]
        if not build.cancelled():
            # Marks the exception as retrieved: all readers may have left.
            build.exception()

    async def _build(self, bundle: StoredBundle) -> _Blocks:
        """The row that names the blocks is complete only after they are stored. Another process may build at the same
        time: then there are two, and one of them is read."""
        archive, wait_seconds = bundle.archive, self._settings.upload_wait_seconds
        async with hold_slot(self._build_slots, bundle.workspace_id, wait_seconds, "builds"):
            with open_spool(spool_folder(self._data_dir)) as spool:
                try:
                    index = await self._build_thread.run(
                        bundle.workspace_id, wait_seconds, lambda: self._write_blocks(bundle, spool)
                    )
                except (BundleError, FileNotFoundError) as fault:
                    raise errors.internal() from fault
                blocks = _Blocks(new_id(), index)

                async def add(connection: Connection) -> None:
                    await blocks_store.add(connection, blocks.id, archive)

                async def finish(connection: Connection) -> bool:
                    return await blocks_store.finish(connection, blocks.id, msgspec.msgpack.encode(index))

                await self._database.statement(add, repeatable=True, owner=bundle.workspace_id)
                await self._blob_store.put(archive.sha256, blocks.id, spool)
                if not await self._database.statement(finish, repeatable=True, owner=bundle.workspace_id):
                    await self._blob_store.delete(archive.sha256, blocks.id)
                    raise errors.unavailable()
        return blocks

    def _write_blocks(self, bundle: StoredBundle, spool: IO[bytes]) -> BlockIndex:
        writer = BlockWriter(spool)
        with self._blob_store.open(bundle.archive.sha256, bundle.archive.generation) as source:
            found = take_all(source, self._limits, writer.write)
        if sorted(found, key=lambda file: file.path) != bundle.files:
            raise BundleError("the stored archive does not match its manifest.")
        starts: dict[str, int] = {}
        at = 0
        for file in found:
            starts[file.path] = at
            at += file.bytes
        return writer.finish([starts[file.path] for file in bundle.files])

    def close(self) -> None:
        self._read_threads.close()
        self._build_thread.close()


def _damaged(file: SkillFile) -> BundleError:
    return BundleError("the stored file does not match the manifest.", path=file.path)


# Deletes blocks that no version uses.

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


# The blocks in the bundle store, for those who move it.


async def find_stored_blocks(connection: Connection, first_byte: int) -> list[Blob]:
    """Of all archives whose SHA-256 has this first byte."""
    return await blocks_store.stored_between(connection, *sha256_range(first_byte))
