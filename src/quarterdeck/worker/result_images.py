"""Stores the images in results of tool calls."""

import asyncio
import hashlib
import io
from collections.abc import Sequence
from uuid import UUID

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.db.database import Database
from quarterdeck.models.model import ResultImage
from quarterdeck.tools.tool import NewImage


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
