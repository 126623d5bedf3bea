"""Files of pushed bundles: each is stored as a blob, is read as it was packed, and is never read wrong."""

import gzip
import io
import random
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.model import Blob
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.settings import BlobSettings, BundleSettings, DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills.model import Bundle
from quarterdeck.skills.session_skills import SkillReader
from quarterdeck.skills.uploads import Uploads
from tests.world import app_url

PIECE_BYTES = 256 * 1024
LARGE = random.Random(1).randbytes(3 * PIECE_BYTES + 17)
# Not in the order of the manifest. Some are empty, are equal, or end where a piece ends.
CONTENTS = {
    "SKILL.md": b"---\nname: demo\ndescription: A test skill.\n---\n",
    "z.txt": b"z" * 1000,
    "empty.txt": b"",
    "a.txt": "ä".encode() * 500,
    "large.bin": LARGE,
    "b/same.bin": LARGE,
    "zeros.bin": bytes(2 * PIECE_BYTES),
    "b/last.txt": b"the end\n",
}


class CountingStore(BlobStore):
    """Notes the ranges that are read."""

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner._store, inner._folder)
        self.read_bytes = 0

    async def read(self, blob: Blob, start: int, end: int) -> bytes:
        self.read_bytes += end - start
        return await super().read(blob, start, end)


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
def reader(database: Database, blob_store: CountingStore) -> SkillReader:
    return SkillReader(database, blob_store)


def packed(contents: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, data in contents.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)


async def stored(database: Database, blob_store: BlobStore, folder: Path, contents: dict[str, bytes]) -> Bundle:
    uploads = Uploads(BundleSettings(), folder)
    try:
        async with uploads.receive(uuid4()) as upload:
            upload.archive.write(packed(contents))
            bundle = await uploads.scan(uuid4(), upload)
            for batch in upload.contents(bundle):
                await blobs.put(database, blob_store, batch)
    finally:
        uploads.close()
    return bundle


async def found(database: Database, sha256: str) -> Blob:
    async def find(connection: Connection) -> dict[str, Blob]:
        return await blobs.find(connection, [sha256])

    return (await database.read(find))[sha256]


async def test_every_file_and_part_is_right(
    reader: SkillReader, database: Database, blob_store: CountingStore, tmp_path: Path
) -> None:
    bundle = await stored(database, blob_store, tmp_path, CONTENTS)
    for file in bundle.manifest.files:
        data = CONTENTS[file.path]
        assert await reader.read(file, 2**30) == data, file.path
        for count in (1, 1000, PIECE_BYTES - 3, PIECE_BYTES, PIECE_BYTES + 3):
            assert await reader.read(file, count) == data[:count], (file.path, count)
    archive = await found(database, bundle.manifest.archive_sha256)
    assert await blob_store.read(archive, 0, bundle.bundle_bytes) == packed(CONTENTS)


async def test_more_files_than_are_stored_at_once(
    reader: SkillReader, database: Database, blob_store: CountingStore, tmp_path: Path
) -> None:
    many = {f"{number % 7}/{number}.txt": f"{number}\n".encode() for number in range(2_500)}
    bundle = await stored(database, blob_store, tmp_path, CONTENTS | many)
    assert (await reader.find_contents(bundle.manifest.files)).keys() == bundle.starts.keys()
    sizes = {file.sha256: file.bytes for file in bundle.manifest.files if file.path in many}
    assert sorted((await blobs.read_all(database, blob_store, sizes)).values()) == sorted(many.values())


async def test_small_file_of_a_large_bundle_costs_its_own_bytes(
    reader: SkillReader, database: Database, blob_store: CountingStore, tmp_path: Path
) -> None:
    bundle = await stored(database, blob_store, tmp_path, CONTENTS)
    files = {file.path: file for file in bundle.manifest.files}
    assert await reader.read(files["b/last.txt"], 1000) == b"the end\n"
    assert await reader.read(files["large.bin"], 100) == LARGE[:100]
    assert blob_store.read_bytes == 8 + 100


async def test_files_of_deleted_skills_are_not_found(
    reader: SkillReader, database: Database, blob_store: CountingStore, tmp_path: Path
) -> None:
    bundle = await stored(database, blob_store, tmp_path, {"SKILL.md": CONTENTS["SKILL.md"]})
    other = await stored(database, blob_store, tmp_path, CONTENTS)

    async def delete(connection: Connection) -> None:
        sha256s = [bytes.fromhex(file.sha256) for file in other.manifest.files]
        await connection.execute("DELETE FROM blobs WHERE sha256 = ANY (%s)", (sha256s,))

    await database.transaction(delete, repeatable=True)
    with pytest.raises(FileNotFoundError):
        await reader.read(bundle.manifest.files[0], 10)


@pytest.mark.parametrize("damage", ["other", "shorter", "gone"])
@pytest.mark.parametrize("path", ["z.txt", "large.bin"])
async def test_damaged_file_is_an_error_of_ours(
    reader: SkillReader, database: Database, blob_store: CountingStore, tmp_path: Path, path: str, damage: str
) -> None:
    bundle = await stored(database, blob_store, tmp_path, CONTENTS)
    file = next(file for file in bundle.manifest.files if file.path == path)
    blob = await found(database, file.sha256)
    await blob_store.delete(blob)
    if damage != "gone":
        left = CONTENTS[path][:-1] + b"?" if damage == "other" else CONTENTS[path][:-1]
        await blob_store.put_all({blob: io.BytesIO(left)})
    with pytest.raises(ServiceError) as fault:
        await reader.read(file, file.bytes)
    assert fault.value.kind in (ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE)
    assert damage == "shorter" or fault.value.kind is ErrorKind.INTERNAL
