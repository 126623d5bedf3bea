"""Files that a run reads and writes: attachments, images in results, and the stored files of its session."""

import asyncio
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Connection, Database
from quarterdeck.models.model import ResultImage
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Superseded
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.folders import open_folders
from quarterdeck.sandbox.manifest import Manifest
from quarterdeck.sandbox.run_folders import MountedSkills, RunSandbox, SkillFolders
from quarterdeck.sandbox.session_folder import SessionFolder
from quarterdeck.session_files import service as session_files
from quarterdeck.skills import service as skills
from quarterdeck.skills.session_skills import RunSkill, SkillReader
from quarterdeck.tools.tool import NewImage

T = TypeVar("T")


class AttachmentLoader:
    """Keeps what the last request had: the next one mostly has the same."""

    def __init__(self, database: Database, blob_store: BlobStore) -> None:
        self._database = database
        self._blob_store = blob_store
        self._loaded: dict[str, bytes] = {}

    async def load(self, wanted: Mapping[str, int]) -> dict[str, bytes]:
        """So many bytes from the start of each content, by SHA-256. Contents that cannot be read are missing."""
        self._loaded = {
            sha256: self._loaded[sha256]
            for sha256, size in wanted.items()
            if sha256 in self._loaded and len(self._loaded[sha256]) >= size
        }
        missing = [sha256 for sha256 in wanted if sha256 not in self._loaded]
        if missing:
            for blob in (await self._database.read(blobs.find, missing)).values():
                await self._read(blob, wanted[blob.sha256])
        return self._loaded

    async def _read(self, blob: Blob, size: int) -> None:
        try:
            data = await self._blob_store.read(blob, 0, size) if size else b""
        except (FileNotFoundError, ServiceError) as fault:
            log.warning("an attachment could not be read", exc_info=fault, extra=fields(sha256=blob.sha256))
            return
        if len(data) == size:
            self._loaded[blob.sha256] = data


# Stores the images in results of tool calls.


class ResultImages:
    def __init__(self, database: Database, blob_store: BlobStore, workspace_id: UUID) -> None:
        self._database = database
        self._blob_store = blob_store
        self._workspace_id = workspace_id

    async def put(self, images: Sequence[NewImage]) -> tuple[ResultImage, ...] | None:
        """None: they could not be stored. The result is stored without them: the call is not made again for them."""
        contents: dict[str, NewBlob] = {}
        stored = []
        for image in images:
            sha256, size = await asyncio.to_thread(_sha256, image.data), len(image.data)
            contents[sha256] = NewBlob(io.BytesIO(image.data), size)
            stored.append(ResultImage(sha256=sha256, media_type=image.media_type, bytes=size))
        try:
            await blobs.put(self._database, self._blob_store, contents, self._workspace_id)
        except (ServiceError, OSError) as fault:
            log.warning("an image could not be stored", exc_info=fault, extra=fields(workspace_id=self._workspace_id))
            return None
        return tuple(stored)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# The stored files of a session, for the worker that drives one of its runs.


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
        return _existing(await self._database.read(session_files.revision, self.session_id))

    async def manifest(self) -> Manifest:
        return _existing(await self._database.read(session_files.read_manifest, self.session_id))

    async def put(self, contents: Mapping[str, NewBlob]) -> None:
        await blobs.put(self._database, self.blobs, contents, self._lease.workspace_id)


def _existing(found: T | None) -> T:
    if found is None:
        raise Superseded
    return found


# The folders of sessions, for a worker with a sandbox.


class SessionFolders:
    def __init__(
        self, database: Database, blobs: BlobStore, skills: SkillReader, sandbox: Sandbox, settings: Settings
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._sandbox = sandbox
        self._settings = settings
        self._folders = open_folders(settings, sandbox.users)
        self._skills = SkillFolders(self._folders, skills, settings.sandbox.kept_folders)

    def run_sandbox(self, lease: Lease, session_skills: Mapping[str, RunSkill]) -> RunSandbox:
        """For one attempt. `session_skills`: by the names of their folders."""
        stored = SessionFiles(self._database, self._blobs, lease)
        return RunSandbox(
            session_folder=SessionFolder(self._folders, stored, self._settings.sandbox),
            skills=MountedSkills(self._skills, session_skills),
            adapter=self._sandbox,
            settings=self._settings.sandbox,
            result_bytes=self._settings.model.tool_result_bytes,
            delta_seconds=self._settings.run.delta_seconds,
        )

    async def sweep(self) -> None:
        """Deletes copies of what was deleted: folders that do not have the stored files, and skills without a version.
        Looks at the current state each time, so it does not matter what it missed. What a run uses stays."""
        folders, archives = self._folders.idle(), self._skills.idle()

        async def read(connection: Connection) -> tuple[dict[UUID, int], set[str]]:
            revisions = await session_files.revisions(connection, [folder.session_id for folder in folders])
            return revisions, await skills.stored_archives(connection, archives)

        revisions, stored = await self._database.read(read)
        for folder in folders:
            if folder.revision is None or folder.revision != revisions.get(folder.session_id):
                self._folders.forget(folder)
        for archive in archives:
            if archive not in stored:
                self._skills.forget(archive)
        self._folders.remove_left()

    async def close(self) -> None:
        await self._folders.close()
