"""Sessions over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.conversations.sessions import service
from quarterdeck.conversations.sessions.model import ChangeSessionBody, CreateSessionBody, SessionBody, SessionPage
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request

# The longest possible title.
_SEARCH_CHARACTERS = 200


@operation(
    summary="List the sessions of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
    queries=(
        Query("archived", {"type": "boolean", "default": False}, "List archived ones instead of active ones."),
        Query(
            "search",
            {"type": "string", "maxLength": _SEARCH_CHARACTERS, "pattern": "^[^\\u0000]*$"},
            "Only those whose title contains this, in capitals or not. Empty: all.",
            example="incident",
        ),
    ),
)
async def list_sessions(request: Request, access: Access) -> SessionPage:
    page, archived = request.page_request(), request.query_flag("archived")
    search = request.query_text("search", most_characters=_SEARCH_CHARACTERS) or None
    return await service.list_sessions(access, request.call_without_body(), page, archived=archived, search=search)


@operation(
    summary="Create a session",
    permission=Permission.SESSION_MANAGE,
    payload=CreateSessionBody,
    success_status=201,
    success_type=SessionBody,
    success="The new session.",
    idempotent=True,
    etag=True,
)
async def create_session(request: Request, changes: Changes) -> Answer:
    return await service.create_session(changes, await request.call(CreateSessionBody))


@operation(
    summary="Get a session",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionBody,
    success="The session. Its messages are in its log.",
    session_token=True,
    etag=True,
)
async def get_session(request: Request, access: Access) -> SessionBody:
    session_id = request.path_id("session_id")
    return await service.get_session(access, request.call_without_body(), session_id)


@operation(
    summary="Change or archive a session",
    description="Changes only the given fields. The active run keeps its settings; the next run uses the new ones. An "
    "archived session answers input with 409; inputs that it has accepted are still processed.",
    permission=Permission.SESSION_MANAGE,
    payload=ChangeSessionBody,
    success_type=SessionBody,
    success="The changed session.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_session(request: Request, changes: Changes) -> Answer:
    session_id = request.path_id("session_id")
    return await service.change_session(changes, await request.call(ChangeSessionBody), session_id)


@operation(
    summary="Delete a session",
    description="Permanently deletes the session with its log, runs and tokens. Its active run is cancelled. Deleting "
    "again returns 404.",
    permission=Permission.SESSION_MANAGE,
    success_status=204,
    success_type=None,
    success="The session is deleted.",
    conditional=True,
)
async def delete_session(request: Request, changes: Changes) -> Answer:
    session_id = request.path_id("session_id")
    return await service.delete_session(changes, request.call_without_body(), session_id)
