"""The files of sessions in transactions that run at the same time."""

import hashlib
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from msgspec import Struct

from quarterdeck.agents.model import ToolResult
from quarterdeck.agents.workspace.model import FileChanges, FileKind, Manifest, StoredFile
from quarterdeck.agents.workspace.rules import InvalidPath, PathConflict
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.service import NewBlob
from quarterdeck.conversations.events.log import lock_session
from quarterdeck.conversations.runs import lifecycle
from quarterdeck.conversations.runs.lifecycle import Lease
from quarterdeck.conversations.workspace_files import records
from quarterdeck.core.settings import DatabaseSettings, RunSettings
from quarterdeck.db.database import Connection, Database
from tests.workers import resolve_setup
from tests.world import Server, World, app_url

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Files(Struct, frozen=True):
    """A session, and a worker's connection to what is stored about it."""

    world: World
    database: Database
    blobs: BlobStore
    session_id: UUID

    async def begin(self) -> Lease:
        run_id = UUID((await self.world.submit(str(self.session_id))).json()["run_id"])
        return await self.begin_again(run_id)

    async def begin_again(self, run_id: UUID) -> Lease:
        lease = await lifecycle.begin(self.database, run_id, RunSettings(), resolve_setup, again=False)
        assert lease is not None
        return lease

    async def content(self, text: bytes) -> str:
        sha256 = hashlib.sha256(text).hexdigest()
        await blobs.put(self.database, self.blobs, {sha256: NewBlob(io.BytesIO(text), len(text))})
        return sha256

    async def file(self, path: str, text: bytes = b"text", mode: int = 0o644) -> StoredFile:
        sha256 = await self.content(text)
        return stored(path, FileKind.FILE, sha256=sha256, size=len(text), mode=mode)

    async def apply(self, written: list[StoredFile], deleted: list[str] | None = None) -> int:
        async def work(connection: Connection) -> int:
            await lock_session(connection, self.session_id)
            return await records.apply_changes(connection, self.session_id, FileChanges(written, deleted or []))

        return await self.database.transaction(work, repeatable=False)

    async def manifest(self, session_id: UUID | None = None) -> Manifest:
        found = await self.database.read(
            lambda connection: records.read_manifest(connection, session_id or self.session_id)
        )
        assert found is not None
        return found

    async def paths(self) -> list[str]:
        return [file.path for file in (await self.manifest()).files]


def stored(
    path: str, kind: FileKind, *, sha256: str | None = None, size: int = 0, mode: int = 0o777, target: str | None = None
) -> StoredFile:
    return StoredFile(path=path, kind=kind, sha256=sha256, bytes=size, mode=mode, target=target, modified_at=NOW)


@pytest.fixture
async def files(world: World, server: Server, tmp_path: Path) -> AsyncIterator[Files]:
    session_id = UUID((await world.post("/v1/sessions", {})).json()["id"])
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=3, lock_wait_seconds=60))
    await database.open()
    yield Files(world, database, open_blob_store(None, tmp_path), session_id)
    await database.close()


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id, "bash", "done")


async def test_changes_become_the_manifest(files: Files) -> None:
    empty = await files.manifest()
    assert (empty.revision, empty.files) == (0, [])
    link = stored("b/link", FileKind.LINK, target="../a")
    assert await files.apply([await files.file("a", b"one", 0o755), link, stored("c", FileKind.FOLDER)]) == 1
    manifest = await files.manifest()
    assert manifest.revision == 1
    [a, b, c] = manifest.files
    assert (a.path, a.kind, a.bytes, a.mode, a.modified_at) == ("a", FileKind.FILE, 3, 0o755, NOW)
    assert a.sha256 == hashlib.sha256(b"one").hexdigest()
    assert a.generation is not None
    assert await files.blobs.read(a.sha256, a.generation, 0, 3) == b"one"
    assert (b.path, b.kind, b.target, b.sha256, b.generation) == ("b/link", FileKind.LINK, "../a", None, None)
    assert (c.path, c.kind) == ("c", FileKind.FOLDER)
    assert await files.apply([await files.file("a", b"other")], ["b/link", "not there"]) == 2
    assert [(file.path, file.bytes) for file in (await files.manifest()).files] == [("a", 5), ("c", 0)]
    assert await files.database.read(lambda c: records.totals(c, files.session_id)) == records.Totals(2, 5)
    assert await files.apply([], []) == 2, "nothing changed"


async def test_a_path_is_either_a_file_or_a_folder(files: Files) -> None:
    await files.apply([await files.file("a"), stored("b", FileKind.FOLDER), await files.file("a.txt")])
    # A file becomes a folder, an empty folder gets a file.
    await files.apply([await files.file("a/b/c"), await files.file("b/d")], ["a"])
    assert await files.paths() == ["a.txt", "a/b/c", "b/d"]
    # The folder of a call that was empty there, while an input added a file.
    await files.apply([stored("b", FileKind.FOLDER)])
    assert await files.paths() == ["a.txt", "a/b/c", "b/d"]
    before = await files.manifest()
    for written in (["a"], ["a/b"], ["b/d/e"], ["x", "x/y"], ["x/y/z", "x"], ["y", "y"]):
        with pytest.raises(PathConflict):
            await files.apply([await files.file(path) for path in written])
    with pytest.raises(PathConflict):
        await files.apply([await files.file("a")], ["a"])
    for path in ("", "/a", "a/", "a//b", "./a", "a/../b", "a\0b", "a\ud800", "x" * 256, "x/" * 600 + "x"):
        with pytest.raises(InvalidPath):
            await files.apply([await files.file(path)])
    for target in ("/etc/passwd", "../../a", "b/../../..", ""):
        with pytest.raises(InvalidPath):
            await files.apply([stored("f/link", FileKind.LINK, target=target)])
    assert await files.manifest() == before
    # A folder becomes a file.
    await files.apply([await files.file("a")], ["a/b/c"])
    assert await files.paths() == ["a", "a.txt", "b/d"]
