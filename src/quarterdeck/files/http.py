"""HTTP handlers of uploaded files."""

from functools import partial
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.changes.perform import Changes
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import Payload, Query, operation
from quarterdeck.core.settings import FileSettings
from quarterdeck.db.database import Database
from quarterdeck.files import rules, service
from quarterdeck.files.model import FileBody
from quarterdeck.files.service import FileUploads
from quarterdeck.http.downloads import DownloadContent, Downloads, safe_name
from quarterdeck.http.request import BYTES, Request


class NameQuery(Query, frozen=True):
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=rules.MAX_NAME_LENGTH,
            pattern=rules.NAME_PATTERN,
            description="Name of the file, without folders.",
            examples=["report.pdf"],
            extra={"otherwise": rules.NAME_FAULT},
        ),
    ]


@operation(
    summary="Upload a file",
    description="The body is the file itself, with its media type as Content-Type. The stored media type is found "
    "from the content; Content-Type and the ending of the name only tell kinds of text apart. Inputs can have the file "
    "as an attachment.",
    permission=Permission.SESSION_MANAGE,
    upload=Payload.FILE,
    created=True,
    success="The new file.",
    idempotent=True,
)
async def upload_file(
    request: Request,
    access: Access,
    changes: Changes,
    database: Database,
    settings: FileSettings,
    uploads: FileUploads,
    blob_store: BlobStore,
    call: Call[None],
    query: NameQuery,
) -> Answer[FileBody]:
    media_type, body = request.media_type(), request.body_stream(settings.request_bytes)
    return await service.upload_file(access, changes, database, uploads, blob_store, call, query.name, media_type, body)


@operation(
    summary="Download a file",
    description="The media type is part of the file's record. Resume an interrupted download with Range.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The content.",
)
async def download_file(
    request: Request, access: Access, blob_store: BlobStore, downloads: Downloads, call: Call[None], file_id: UUID
) -> Response:
    file = await service.find_file(access, call, file_id)
    content = DownloadContent(
        # For every file: a browser must never render one as a page of this server.
        media_type=BYTES,
        sha256=file.body.sha256,
        size=file.body.bytes,
        file_name=safe_name(file.body.name),
        full_name=file.body.name,
        pieces=partial(blobs.pieces, blob_store, file.blob, file.body.bytes),
    )
    return downloads.respond(request, content)
