"""The files of a session's workspace over HTTP."""

from functools import partial

from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.http.downloads import Content, Downloads, safe_name
from quarterdeck.http.operation import Query, Refusal, operation
from quarterdeck.http.request import BYTES, GZIP, Request
from quarterdeck.sandbox.manifest import PATH_BYTES
from quarterdeck.session_files import service
from quarterdeck.session_files.archive import Archives
from quarterdeck.session_files.model import SessionFilePage

_PATH = {"type": "string", "maxLength": PATH_BYTES, "pattern": "^[^\\u0000]*$"}


@operation(
    summary="List the files of a session",
    description="The files in its workspace, by path. They are those that the last finished tool call and the last "
    "input have left: what a running call does is seen when the call has ended.",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionFilePage,
    success="One page. next_cursor is null on the last page.",
    session_token=True,
    by_path=True,
    queries=(Query("prefix", _PATH, "Only files whose path begins with this. Empty: all.", example="report/"),),
)
async def list_session_files(request: Request, access: Access) -> SessionFilePage:
    session_id, page = request.path_id("session_id"), request.path_page_request(PATH_BYTES)
    prefix = request.query_text("prefix", most_characters=PATH_BYTES) or ""
    return await service.list_session_files(access, request.call_without_body(), session_id, page, prefix)


@operation(
    summary="Download a file of a session",
    description="A link is followed to its file. The content may be anything, so it is sent as bytes, which browsers "
    "save.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The content of the file.",
    session_token=True,
    queries=(
        Query(
            "path",
            _PATH | {"minLength": 1, "pattern": "^[^\\u0000]+$"},
            "Path of the file, as in the list.",
            required=True,
            example="report/summary.md",
        ),
    ),
    refusals=(
        Refusal(
            "no_session_file",
            errors.not_found("file"),
            "The session has no file at this path, or the path is a folder or a link that leads to no file.",
            "List the files of the session.",
        ),
    ),
)
async def download_session_file(request: Request, access: Access, store: BlobStore, downloads: Downloads) -> Response:
    session_id = request.path_id("session_id")
    path = request.query_text("path", required=True, most_characters=PATH_BYTES) or ""
    file = await service.find_session_file(access, request.call_without_body(), session_id, path)
    assert file.sha256 is not None
    assert file.generation is not None
    content = Content(
        media_type=BYTES,
        sha256=file.sha256,
        size=file.bytes,
        file_name=safe_name(path.rpartition("/")[2]),
        pieces=partial(blobs.pieces, store, Blob(file.sha256, file.generation)),
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
    request: Request, access: Access, archives: Archives, downloads: Downloads
) -> Response:
    session_id = request.path_id("session_id")
    found = await service.read_session_files(access, request.call_without_body(), session_id)
    name = f"{safe_name(found.title or 'session')}.tar.gz"
    return downloads.stream(GZIP, name, archives.pieces(found.manifest))
