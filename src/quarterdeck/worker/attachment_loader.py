"""Loads the contents of attachments for the requests of one run."""

import asyncio
import hashlib
import io
from collections.abc import Mapping, Sequence
from uuid import UUID

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.db.database import Connection, Database
from quarterdeck.models.model import ResultImage
from quarterdeck.tools.tool import NewImage


class AttachmentLoader:
    """Keeps what the last request had: the next one mostly has the same."""

    def __init__(self, database: Database, store: BlobStore) -> None:
        self._database = database
        self._store = store
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

            async def find(connection: Connection) -> dict[str, Blob]:
                return await blobs.find(connection, missing)

            for blob in (await self._database.read(find)).values():
                await self._read(blob, wanted[blob.sha256])
        return self._loaded

    async def _read(self, blob: Blob, size: int) -> None:
        try:
            data = await self._store.read(blob.sha256, blob.generation, 0, size) if size else b""
        except (FileNotFoundError, ServiceError) as fault:
            log.warning("an attachment could not be read", exc_info=fault, extra=fields(sha256=blob.sha256))
            return
        if len(data) == size:
            self._loaded[blob.sha256] = data


# Stores the images in results of tool calls.


class ResultImages:
    def __init__(self, database: Database, store: BlobStore, workspace_id: UUID) -> None:
        self._database = database
        self._store = store
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
            await blobs.put(self._database, self._store, contents, self._workspace_id)
        except (ServiceError, OSError) as fault:
            log.warning("an image could not be stored", exc_info=fault, extra=fields(workspace_id=self._workspace_id))
            return None
        return tuple(stored)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
