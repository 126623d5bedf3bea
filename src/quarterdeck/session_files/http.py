"""The files of a session over HTTP."""

from functools import partial
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Call
from quarterdeck.core.operation import ErrorCase, Path, Query, operation
from quarterdeck.http.downloads import DownloadContent, Downloads, safe_name
from quarterdeck.http.request import BYTES, GZIP, Request
from quarterdeck.session_files import service
from quarterdeck.session_files.archive import Archives


class SessionFileQuery(Query, frozen=True):
    path: Annotated[Path, Meta(description="Path of the file, as in the list.", examples=["report/summary.md"])]


@operation(
    summary="Download a file of a session",
    description="A link is followed to its file. The content may be anything, so it is sent as bytes, which browsers "
    "save.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The content of the file.",
    session_token=True,
    refusals=(
        ErrorCase(
            "no_session_file",
            errors.not_found("file"),
            "The session has no file at this path, or the path is a folder or a link that leads to no file.",
            "List the files of the session.",
        ),
    ),
)
async def download_session_file(
    request: Request,
    access: Access,
    blob_store: BlobStore,
    downloads: Downloads,
    call: Call[None],
    session_id: UUID,
    query: SessionFileQuery,
) -> Response:
    file = await service.find_session_file(access, call, session_id, query.path)
    content = DownloadContent(
        media_type=BYTES,
        sha256=file.blob.sha256,
        size=file.bytes,
        file_name=safe_name(query.path.rpartition("/")[2]),
        pieces=partial(blobs.pieces, blob_store, file.blob, file.bytes),
    )
    return downloads.respond(request, content)


@operation(
    summary="Download all files of a session",
    description="A tar archive, compressed with gzip, of the files as they are now. It is made while it is sent. Links "
    "are stored as links, and permission bits are kept.",
    permission=Permission.WORKSPACE_READ,
    formats=(GZIP,),
    success="The archive.",
    session_token=True,
)
async def download_session_archive(
    access: Access, archives: Archives, downloads: Downloads, call: Call[None], session_id: UUID
) -> Response:
    found = await service.read_session_files(access, call, session_id)
    name = f"{safe_name(found.title or 'session')}.tar.gz"
    return downloads.stream(GZIP, name, archives.pieces(found.manifest))
