"""Files of sessions, stored as workers do it."""

import hashlib
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.settings import BlobSettings, DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.log import lock_session
from quarterdeck.sandbox.manifest import FileChanges, FileKind, Manifest, StoredFile
from quarterdeck.session_files import service
from tests.world import World, app_url

NOW = datetime(2026, 3, 1, tzinfo=UTC)
# The first archive that was pushed to the server becomes a file.
_BORROW = """
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)
SELECT s.id, %s, 'file', b.sha256, b.bytes, 420, now()
FROM sessions s
JOIN skills k ON k.workspace_id = s.workspace_id
JOIN skill_versions v ON v.skill_id = k.id
JOIN blobs b ON b.sha256 = v.bundle_sha256
WHERE s.id = %s LIMIT 1
"""


class SessionFiles(Struct, frozen=True):
    database: Database
    blobs: BlobStore
    session_id: UUID

    async def put(self, contents: Sequence[bytes]) -> None:
        found = {hashlib.sha256(one).hexdigest(): NewBlob(io.BytesIO(one), len(one)) for one in contents}
        await blobs.put(self.database, self.blobs, found)

    async def file(self, path: str, text: bytes = b"text", mode: int = 0o644) -> StoredFile:
        await self.put([text])
        return stored_file(path, text, mode)

    async def apply(self, written: Sequence[StoredFile], deleted: Sequence[str] = ()) -> int:
        async def work(connection: Connection) -> int:
            await lock_session(connection, self.session_id)
            return await service.apply_changes(connection, self.session_id, FileChanges(list(written), list(deleted)))

        return await self.database.transaction(work, repeatable=False)

    async def write(self, contents: Mapping[str, bytes]) -> int:
        await self.put(list(contents.values()))
        return await self.apply([stored_file(path, text) for path, text in contents.items()])

    async def manifest(self, session_id: UUID | None = None) -> Manifest:
        async def read(connection: Connection) -> Manifest | None:
            return await service.read_manifest(connection, session_id or self.session_id)

        found = await self.database.read(read)
        assert found is not None
        return found

    async def paths(self) -> list[str]:
        return [file.path for file in (await self.manifest()).files]


def stored_file(path: str, text: bytes = b"text", mode: int = 0o644) -> StoredFile:
    sha256 = hashlib.sha256(text).hexdigest()
    return StoredFile(
        path=path, kind=FileKind.FILE, sha256=sha256, bytes=len(text), mode=mode, target=None, modified_at=NOW
    )


def stored_link(path: str, target: str) -> StoredFile:
    return StoredFile(path=path, kind=FileKind.LINK, sha256=None, bytes=0, mode=0o777, target=target, modified_at=NOW)


def stored_folder(path: str) -> StoredFile:
    return StoredFile(path=path, kind=FileKind.FOLDER, sha256=None, bytes=0, mode=0o755, target=None, modified_at=NOW)


@asynccontextmanager
async def session_files(database_url: str, data_dir: Path, session_id: str) -> AsyncIterator[SessionFiles]:
    """`data_dir`: of the server, if it is to serve the contents."""
    database = Database(app_url(database_url), DatabaseSettings(pool_connections=3, lock_wait_seconds=60))
    await database.open()
    try:
        yield SessionFiles(database, open_blob_store(BlobSettings(), data_dir), UUID(session_id))
    finally:
        await database.close()


async def add_archive_as_file(world: World, session_id: str, path: str) -> None:
    """For tests that need any file of a session, and have pushed a bundle."""
    await world.execute(_BORROW, path, session_id)
