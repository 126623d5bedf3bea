"""The stored files of a session, for the worker that drives one of its runs."""

from collections.abc import Mapping
from uuid import UUID

from quarterdeck.blobs import service as blob_service
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Connection, Database
from quarterdeck.runs.lifecycle import Lease, Superseded
from quarterdeck.sandbox.folders import open_folders
from quarterdeck.sandbox.manifest import Manifest
from quarterdeck.sandbox.model import Sandbox
from quarterdeck.sandbox.run_folders import Place
from quarterdeck.sandbox.session_folder import Workspace
from quarterdeck.sandbox.skill_folders import MountedSkills, SkillFolders, SkillSource
from quarterdeck.session_files import records
from quarterdeck.skills import service as skills


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


# What a worker with a sandbox needs for the workspaces of sessions.


class Workspaces:
    def __init__(self, database: Database, blobs: BlobStore, sandbox: Sandbox, settings: Settings) -> None:
        self._database = database
        self._blobs = blobs
        self._sandbox = sandbox
        self._settings = settings
        self._folders = open_folders(settings, sandbox.users)
        self._skills = SkillFolders(self._folders, settings.workspace.kept_folders)

    def place(self, lease: Lease, sources: Mapping[str, SkillSource]) -> Place:
        """For one attempt. `sources`: of its skills, by the names of their folders."""
        stored = SessionFiles(self._database, self._blobs, lease)
        return Place(
            workspace=Workspace(self._folders, stored, self._settings.workspace),
            skills=MountedSkills(self._skills, sources),
            sandbox=self._sandbox,
            settings=self._settings.sandbox,
            result_bytes=self._settings.model.tool_result_bytes,
            delta_seconds=self._settings.run.delta_seconds,
        )

    async def sweep(self) -> None:
        """Deletes copies of what was deleted: folders that do not have the stored files, and skills without a version.
        Looks at the current state each time, so it does not matter what it missed. What a run uses stays."""
        folders, archives = self._folders.idle(), self._skills.idle()

        async def read(connection: Connection) -> tuple[dict[UUID, int], set[str]]:
            revisions = await records.revisions(connection, [folder.session_id for folder in folders])
            return revisions, await skills.stored_archives(connection, [archive.sha256 for archive in archives])

        revisions, stored = await self._database.read(read)
        for folder in folders:
            if folder.revision is None or folder.revision != revisions.get(folder.session_id):
                self._folders.forget(folder)
        for archive in archives:
            if archive.sha256 not in stored:
                self._skills.forget(archive)
        self._folders.remove_left()

    async def close(self) -> None:
        await self._folders.close()
