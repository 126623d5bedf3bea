"""Files of stored bundles: read from the archive or from blocks, and never wrong."""

import asyncio
import gzip
import io
import random
import tarfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest
from obstore.store import MemoryStore

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.model import Blob
from quarterdeck.blobs.service import NewBlob, sweep_blobs
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import BlobSettings, BundleSettings, DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import blocks_store
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.blocks import BLOCK_BYTES, BlockIndex
from quarterdeck.skills.bundle_files import BundleFiles, sweep_blocks
from quarterdeck.skills.model import SkillFile, StoredBundle
from tests.world import AS_OWNER, app_url

NOISE = random.Random(1)
# Not in the order of the manifest. Files end inside blocks, at their ends, and have none.
SMALL = {
    "SKILL.md": b"---\nname: demo\ndescription: A test skill.\n---\n",
    "z.txt": b"z" * 1000,
    "empty.txt": b"",
    "a.txt": "ä".encode() * 500,
}
LARGE = SMALL | {
    "noise.bin": NOISE.randbytes(3 * BLOCK_BYTES + 17),
    "zeros.bin": bytes(2 * BLOCK_BYTES),
    "b/last.txt": b"the end\n",
}


class CountingStore(BlobStore):
    """Notes the ranges that are read, and how often an archive is opened."""

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner._store, inner._folder)
        self.read_bytes = 0
        self.reads = 0
        self.opened = 0

    async def read(self, sha256: str, generation: UUID, start: int, end: int) -> bytes:
        self.reads += 1
        self.read_bytes += end - start
        return await super().read(sha256, generation, start, end)

    def open(self, sha256: str, generation: UUID) -> Any:
        self.opened += 1
        return super().open(sha256, generation)


@pytest.fixture(params=["folder", "object store"])
def blob_store(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStore:
    inner = open_blob_store(BlobSettings(), tmp_path) if request.param == "folder" else BlobStore(MemoryStore(), None)
    return CountingStore(inner)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(app_url(database_url), DatabaseSettings())
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def files(database: Database, blob_store: CountingStore, tmp_path: Path) -> BundleFiles:
    return BundleFiles(database, blob_store, BundleSettings(), tmp_path, 2)


def packed(contents: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, data in contents.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)


async def stored(database: Database, blob_store: BlobStore, contents: dict[str, bytes]) -> StoredBundle:
    archive = packed(contents)
    bundle = read_bundle(io.BytesIO(archive), BundleSettings())

    sha256 = bundle.manifest.archive_sha256
    await blobs.put(database, blob_store, {sha256: NewBlob(io.BytesIO(archive), len(archive))})

    async def find(connection: Connection) -> dict[str, Blob]:
        return await blobs.find(connection, [sha256])

    name = (await database.read(find))[sha256]
    return StoredBundle(uuid4(), name, bundle.manifest.files)


def file_of(bundle: StoredBundle, path: str) -> SkillFile:
    return next(file for file in bundle.files if file.path == path)


async def read(files: BundleFiles, bundle: StoredBundle, path: str, start: int = 0, end: int | None = None) -> bytes:
    file = file_of(bundle, path)
    pieces = files.pieces(bundle, file, start, file.bytes if end is None else end)
    return b"".join([piece async for piece in pieces])


async def stored_blocks(database: Database, bundle: StoredBundle) -> tuple[UUID, BlockIndex]:
    async def find(connection: Connection) -> tuple[UUID, bytes] | None:
        return await blocks_store.find(connection, bundle.archive)

    found = await database.read(find)
    assert found is not None
    return found[0], msgspec.msgpack.decode(found[1], type=BlockIndex)


async def age(database_url: str, table: str) -> None:
    column = {"bundle_blocks": "created_at", "blobs": "touched_at"}[table]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        await connection.execute(f"UPDATE {table} SET {column} = now() - interval '25 hours'".encode())


@pytest.mark.parametrize("contents", [SMALL, LARGE], ids=["small", "large"])
async def test_every_file_and_part_is_right(
    files: BundleFiles, database: Database, blob_store: CountingStore, contents: dict[str, bytes]
) -> None:
    bundle = await stored(database, blob_store, contents)
    for path, data in contents.items():
        assert await read(files, bundle, path) == data
        for start, end in ((0, 1), (5, 1000), (BLOCK_BYTES - 3, BLOCK_BYTES + 3), (len(data) - 1, len(data))):
            if 0 <= start < end <= len(data):
                assert await read(files, bundle, path, start, end) == data[start:end], (path, start, end)
    assert await files.read_files(bundle, bundle.files) == contents
    assert await files.read_files(bundle, []) == {}


async def test_pieces_are_no_larger_than_a_block(
    files: BundleFiles, database: Database, blob_store: CountingStore
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    file = file_of(bundle, "noise.bin")
    sizes = [len(piece) async for piece in files.pieces(bundle, file, 0, file.bytes)]
    assert max(sizes) <= BLOCK_BYTES
    assert sum(sizes) == file.bytes


async def test_small_file_of_a_large_bundle_costs_one_block(
    files: BundleFiles, database: Database, blob_store: CountingStore
) -> None:
    """Only the first read of the bundle unpacks the archive."""
    bundle = await stored(database, blob_store, LARGE | {"more.bin": bytes(4 * 1024 * 1024)})
    assert await read(files, bundle, "b/last.txt") == b"the end\n"
    assert blob_store.opened == 1
    blob_store.reads = blob_store.read_bytes = 0
    for _ in range(10):
        assert await read(files, bundle, "b/last.txt") == b"the end\n"
        assert await read(files, bundle, "more.bin", 4_000_000, 4_000_004) == bytes(4)
        assert await files.read_files(bundle, [file_of(bundle, "a.txt")]) == {"a.txt": LARGE["a.txt"]}
    assert blob_store.opened == 1
    assert blob_store.reads == 30
    # A block of noise is larger than its content.
    assert blob_store.read_bytes < 31 * BLOCK_BYTES


async def test_neighbours_are_read_with_one_block(
    files: BundleFiles, database: Database, blob_store: CountingStore
) -> None:
    many = {f"files/{number}.txt": f"{number}\n".encode() for number in range(300)}
    bundle = await stored(database, blob_store, LARGE | many)
    await read(files, bundle, "SKILL.md")
    blob_store.reads = 0
    wanted = [file for file in bundle.files if file.path.startswith("files/")]
    assert await files.read_files(bundle, wanted) == many
    assert blob_store.reads <= 2


async def test_bomb_takes_no_disk(files: BundleFiles, database: Database, blob_store: CountingStore) -> None:
    bundle = await stored(database, blob_store, LARGE | {"bomb.bin": bytes(16 * 1024 * 1024)})
    blob_store.reads = blob_store.read_bytes = 0
    await read(files, bundle, "bomb.bin")
    assert blob_store.read_bytes < 256 * 1024


async def test_many_readers_of_a_new_bundle_share_one_build(
    files: BundleFiles, database: Database, blob_store: CountingStore
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    assert set(await asyncio.gather(*(read(files, bundle, "b/last.txt") for _ in range(20)))) == {b"the end\n"}
    assert blob_store.opened == 1


async def test_reader_that_leaves_does_not_end_the_build(
    files: BundleFiles, database: Database, blob_store: CountingStore
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    leaving, staying = (asyncio.create_task(read(files, bundle, "b/last.txt")) for _ in range(2))
    while not blob_store.opened:
        await asyncio.sleep(0.001)
    leaving.cancel()
    assert await staying == b"the end\n"
    assert blob_store.opened == 1


async def test_two_processes_that_build_at_the_same_time_do_no_harm(
    files: BundleFiles, database: Database, blob_store: CountingStore, tmp_path: Path
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    other = BundleFiles(database, blob_store, BundleSettings(), tmp_path, 2)
    assert await asyncio.gather(*(read(one, bundle, "z.txt") for one in (files, other))) == [LARGE["z.txt"]] * 2
    assert await read(files, bundle, "noise.bin") == LARGE["noise.bin"]


# --- damage ---


@pytest.mark.parametrize("contents", [SMALL, LARGE], ids=["small", "large"])
async def test_archive_that_is_gone_or_damaged_is_an_error_of_ours(
    files: BundleFiles, database: Database, blob_store: CountingStore, contents: dict[str, bytes]
) -> None:
    bundle = await stored(database, blob_store, contents)
    gone = StoredBundle(bundle.workspace_id, Blob("ab" * 32, uuid4()), bundle.files)
    await blob_store.put("cd" * 32, gone.archive.generation, io.BytesIO(packed(contents)[:60]))
    damaged = StoredBundle(bundle.workspace_id, Blob("cd" * 32, gone.archive.generation), bundle.files)
    other = StoredBundle(bundle.workspace_id, bundle.archive, [*bundle.files[:-1], SkillFile("x", 1, "", False)])
    for broken, path in ((gone, "SKILL.md"), (damaged, "z.txt"), (other, "x")):
        with pytest.raises(ServiceError) as fault:
            await read(files, broken, path)
        assert fault.value.kind is ErrorKind.INTERNAL


@pytest.mark.parametrize("damage", ["noise", "another bundle", "gone"])
async def test_damaged_blocks_are_never_read_as_right(
    files: BundleFiles, database: Database, blob_store: CountingStore, damage: str
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    await read(files, bundle, "SKILL.md")
    blocks_id, blocks = await stored_blocks(database, bundle)
    await blob_store.delete(bundle.archive.sha256, blocks_id)
    if damage == "noise":
        await blob_store.put(bundle.archive.sha256, blocks_id, io.BytesIO(NOISE.randbytes(4 * 1024 * 1024)))
    if damage == "another bundle":
        # Blocks that can be unpacked, with content of the same length.
        content = b"".join(LARGE.values())
        others = [bytes(len(content[at : at + BLOCK_BYTES])) for at in range(0, len(content), BLOCK_BYTES)]
        spans = [blocks.span(number) for number in range(len(others))]
        raw = b"".join(zlib.compress(one).ljust(end - start) for one, (start, end) in zip(others, spans, strict=True))
        await blob_store.put(bundle.archive.sha256, blocks_id, io.BytesIO(raw))
    for path, start, end in (("noise.bin", 0, None), ("noise.bin", 5, 10), ("b/last.txt", 0, None)):
        with pytest.raises(ServiceError) as fault:
            await read(files, bundle, path, start, end)
        assert fault.value.kind is ErrorKind.INTERNAL
    with pytest.raises(ServiceError):
        await files.read_files(bundle, [file_of(bundle, "a.txt")])


# --- crash points and deletion ---


async def test_blocks_without_an_index_are_not_read_and_are_swept(
    files: BundleFiles, database: Database, blob_store: CountingStore, database_url: str
) -> None:
    """As a crash leaves them between the row and its index."""
    bundle = await stored(database, blob_store, LARGE)
    left = new_id()

    async def add(connection: Connection) -> None:
        await blocks_store.add(connection, left, bundle.archive)

    await database.statement(add, repeatable=True)
    await blob_store.put(bundle.archive.sha256, left, io.BytesIO(b"half of"))
    assert await read(files, bundle, "b/last.txt") == b"the end\n"
    assert (await stored_blocks(database, bundle))[0] != left
    await sweep_blocks(database, blob_store, 24)
    assert await blob_store.read(bundle.archive.sha256, left, 0, 4) == b"half", "its build may be under way"
    await age(database_url, "bundle_blocks")
    await sweep_blocks(database, blob_store, 24)
    with pytest.raises(FileNotFoundError):
        await blob_store.read(bundle.archive.sha256, left, 0, 4)
    assert await files.read_files(bundle, [file_of(bundle, "z.txt")]) == {"z.txt": LARGE["z.txt"]}


async def test_blocks_go_with_their_archive(
    files: BundleFiles, database: Database, blob_store: CountingStore, database_url: str
) -> None:
    bundle = await stored(database, blob_store, LARGE)
    await read(files, bundle, "SKILL.md")
    blocks_id, _ = await stored_blocks(database, bundle)
    await age(database_url, "blobs")
    assert await sweep_blobs(database, blob_store, 24) == 1
    await sweep_blocks(database, blob_store, 24)
    for name in (bundle.archive.generation, blocks_id):
        with pytest.raises(FileNotFoundError):
            await blob_store.read(bundle.archive.sha256, name, 0, 4)

    async def find(connection: Connection) -> tuple[UUID, bytes] | None:
        return await blocks_store.find(connection, bundle.archive)

    assert await database.read(find) is None


async def test_build_whose_row_was_swept_leaves_nothing(
    files: BundleFiles,
    database: Database,
    blob_store: CountingStore,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was paused for a day while it stored the blocks."""
    bundle = await stored(database, blob_store, LARGE)
    written: list[UUID] = []
    put = blob_store.put

    async def put_late(sha256: str, generation: UUID, archive: IO[bytes]) -> None:
        await age(database_url, "bundle_blocks")
        await sweep_blocks(database, blob_store, 24)
        await put(sha256, generation, archive)
        written.append(generation)

    monkeypatch.setattr(blob_store, "put", put_late)
    with pytest.raises(ServiceError) as fault:
        await read(files, bundle, "SKILL.md")
    assert fault.value.kind is ErrorKind.UNAVAILABLE
    with pytest.raises(FileNotFoundError):
        await blob_store.read(bundle.archive.sha256, written[0], 0, 4)
    monkeypatch.undo()
    assert await read(files, bundle, "SKILL.md") == LARGE["SKILL.md"]
