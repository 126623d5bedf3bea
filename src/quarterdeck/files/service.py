"""Operations on uploaded files."""

import asyncio
import codecs
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast
from uuid import UUID

from msgspec.structs import replace

from quarterdeck.auth.access import Access, visible_record, visible_workspace
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob, open_spool
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import LOWEST_ID, new_id
from quarterdeck.core.operation import operation
from quarterdeck.core.settings import BundleSettings, FileSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.walks import walk
from quarterdeck.files import rules, store
from quarterdeck.files.model import FileBody, Upload, UploadedFile

# Receives uploaded files: a limited number at a time, each into a temporary file.

# Collected before they are written in a thread. Smaller bodies are not worth one.
_BATCH_BYTES = 256 * 1024


class Received:
    def __init__(self, content: IO[bytes]) -> None:
        self.content = content
        self.bytes = 0
        # Whether it is valid UTF-8 without NUL.
        self.is_text = True
        self._digest = hashlib.sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, piece: bytes, *, is_last: bool = False) -> None:
        self.content.write(piece)
        self.bytes += len(piece)
        self._digest.update(piece)
        if self.is_text:
            try:
                self.is_text = "\0" not in self._decoder.decode(piece, is_last)
            except UnicodeDecodeError:
                self.is_text = False


class FileUploads:
    """`shares` says what part of the slots one workspace can hold, and how long a caller waits for one."""

    def __init__(self, settings: FileSettings, shares: BundleSettings, folder: Path) -> None:
        self._slots = Slots(settings.uploads, shares.per_workspace(settings.uploads))
        self._wait_seconds = shares.upload_wait_seconds
        self._folder = folder

    @asynccontextmanager
    async def receive(self, workspace_id: UUID, body: AsyncIterator[bytes]) -> AsyncIterator[Received]:
        """A caller that waits for its turn has not sent the body yet, so it holds neither memory nor disk."""
        async with hold_slot(self._slots, workspace_id, self._wait_seconds, "uploads"):
            with open_spool(self._folder) as spool:
                received, batch = Received(spool), bytearray()
                async for piece in body:
                    batch += piece
                    if len(batch) >= _BATCH_BYTES:
                        await asyncio.to_thread(received.write, bytes(batch))
                        batch.clear()
                received.write(bytes(batch), is_last=True)
                yield received


_DELETE_BATCH = 1000


async def upload_file(
    access: Access,
    changes: Changes,
    database: Database,
    uploads: FileUploads,
    blob_store: BlobStore,
    call: Call[None],
    name: str,
    declared_type: str,
    body: AsyncIterator[bytes],
) -> Answer[FileBody]:
    """Checks the caller before reading a byte, and again with the write: the body may take a minute.

    The content is stored before its row. A crash between the two leaves a blob without a reference, which the sweep
    removes."""
    lookup = visible_workspace(call)
    workspace_id = await access.find(call, lookup)
    async with uploads.receive(workspace_id, body) as received:
        media_type = await asyncio.to_thread(
            rules.media_type, received.content, name, declared_type, is_text=received.is_text
        )
        upload = Upload(name, media_type, received.bytes, received.sha256)
        content = NewBlob(received.content, received.bytes)
        await blobs.put(database, blob_store, {upload.sha256: content}, call.owner)

    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, upload: Upload) -> Made:
        file_id = new_id()
        await store.add(connection, file_id, workspace_id, upload, principal.user_id)
        stored = await store.get(connection, workspace_id, file_id)
        assert stored is not None
        return Made.plain(stored.body, file_id, upload.name, media_type=upload.media_type, bytes=upload.bytes)

    return await changes.perform(
        cast("Call[Upload]", replace(call, read_body=lambda: upload)), lookup, ObjectType.FILE, effect
    )


@operation(
    summary="Get a file",
    description="Without its content.",
    permission=Permission.WORKSPACE_READ,
    success="The file.",
)
async def get_file(access: Access, call: Call[None], file_id: UUID) -> FileBody:
    return (await find_file(access, call, file_id)).body


async def find_file(access: Access, call: Call[None], file_id: UUID) -> UploadedFile:
    return await access.find(call, visible_record(call, "file", store.get, file_id))


@operation(
    summary="Delete a file",
    description="Permanently. Sessions to which the file was attached keep its content. Repeating the request is 404.",
    permission=Permission.SESSION_MANAGE,
    success="The file is deleted.",
)
async def delete_file(changes: Changes, call: Call[None], file_id: UUID) -> Answer[None]:
    """Sessions that have the content keep it."""

    async def effect(connection: Connection, principal: Principal, file: UploadedFile, __: None) -> Made:
        if not await store.delete(connection, principal.workspace_id, file_id):
            raise errors.not_found("file")
        detail = {"name": file.body.name, "bytes": file.body.bytes}
        return Made(shown=None, kept=None, object_id=file_id, object_name=file.body.name, detail=detail)

    return await changes.perform(call, visible_record(call, "file", store.get, file_id), ObjectType.FILE, effect)


async def sweep_files(database: Database, days: int | None, shortest_days: int) -> int:
    """Deletes expired files. Sessions that have the content keep it. `days`: the retention of the server, or None.
    `shortest_days`: of all workspaces."""
    delete = partial(store.delete_old, days=days, shortest_days=shortest_days, batch=_DELETE_BATCH)
    return await walk(database, delete, LOWEST_ID, _DELETE_BATCH)
