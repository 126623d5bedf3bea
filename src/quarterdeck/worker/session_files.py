"""The stored files of a session, for the worker that drives one of its runs."""

from collections.abc import Mapping
from uuid import UUID

from quarterdeck.blobs import service as blob_service
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob
from quarterdeck.db.database import Connection, Database
from quarterdeck.runs.lifecycle import Lease, Superseded
from quarterdeck.sandbox.manifest import Manifest
from quarterdeck.session_files import records


class SessionFiles:
    """sandbox/session_folder.py: StoredFiles"""

    def __init__(self, database: Database, blobs: BlobStore, lease: Lease) -> None:
        self._database = database
        self.blobs = blobs
        self._lease = lease

    @property
    def session_id(self) -> UUID:
        return self._lease.session_id

    @property
    def workspace_id(self) -> UUID:
        return self._lease.workspace_id

    async def revision(self) -> int:
        async def read(connection: Connection) -> int | None:
            return await records.revision(connection, self.session_id)

        found = await self._database.read(read)
        if found is None:
            raise Superseded
        return found

    async def manifest(self) -> Manifest:
        async def read(connection: Connection) -> Manifest | None:
            return await records.read_manifest(connection, self.session_id)

        found = await self._database.read(read)
        if found is None:
            raise Superseded
        return found

    async def put(self, contents: Mapping[str, NewBlob]) -> None:
        await blob_service.put(self._database, self.blobs, contents, self._lease.workspace_id)
