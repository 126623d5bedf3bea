"""HTTP handlers of uploaded files."""

from functools import partial

from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.changes.perform import Changes
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import FileSettings
from quarterdeck.db.database import Database
from quarterdeck.files import rules, service
from quarterdeck.files.model import FileBody
from quarterdeck.files.uploads import FileUploads
from quarterdeck.http.downloads import Content, Downloads, safe_name
from quarterdeck.http.operation import Payload, Query, operation
from quarterdeck.http.request import BYTES, Request


@operation(
    summary="Upload a file",
    description="The body is the file itself, with its media type as Content-Type. The stored media type is found "
    "from the content; Content-Type and the ending of the name only tell kinds of text apart. Inputs can have the file "
    "as an attachment.",
    permission=Permission.SESSION_MANAGE,
    payload=Payload.FILE,
    success_status=201,
    success_type=FileBody,
    success="The new file.",
    idempotent=True,
    queries=(
        Query(
            "name",
            {
                "type": "string",
                "minLength": 1,
                "maxLength": rules.MAX_NAME_LENGTH,
                "pattern": rules.NAME_PATTERN,
            },
            "Name of the file, without folders.",
            required=True,
            example="report.pdf",
        ),
    ),
)
async def upload_file(
    request: Request,
    access: Access,
    changes: Changes,
    database: Database,
    settings: FileSettings,
    uploads: FileUploads,
    blob_store: BlobStore,
) -> Answer:
    name = request.query_checked("name", rules.name_fault)
    media_type = request.media_type()
    call, body = request.call_without_body(), request.body_stream(settings.request_bytes)
    return await service.upload_file(access, changes, database, uploads, blob_store, call, name, media_type, body)


@operation(
    summary="Get a file",
    description="Without its content.",
    permission=Permission.WORKSPACE_READ,
    success_type=FileBody,
    success="The file.",
)
async def get_file(request: Request, access: Access) -> FileBody:
    file_id = request.path_id("file_id")
    return (await service.get_file(access, request.call_without_body(), file_id)).body


@operation(
    summary="Download a file",
    description="The media type is part of the file's record. Resume an interrupted download with Range.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The content.",
)
async def download_file(request: Request, access: Access, blob_store: BlobStore, downloads: Downloads) -> Response:
    file_id = request.path_id("file_id")
    file = await service.get_file(access, request.call_without_body(), file_id)
    content = Content(
        # For every file: a browser must never render one as a page of this server.
        media_type=BYTES,
        sha256=file.body.sha256,
        size=file.body.bytes,
        file_name=safe_name(file.body.name),
        full_name=file.body.name,
        pieces=partial(blobs.pieces, blob_store, file.blob),
    )
    return downloads.respond(request, content)


@operation(
    summary="Delete a file",
    description="Permanently. Sessions to which the file was attached keep its content. Repeating the request is 404.",
    permission=Permission.SESSION_MANAGE,
    success_status=204,
    success_type=None,
    success="The file is deleted.",
)
async def delete_file(request: Request, changes: Changes) -> Answer:
    file_id = request.path_id("file_id")
    return await service.delete_file(changes, request.call_without_body(), file_id)
