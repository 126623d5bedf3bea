"""Sessions over HTTP."""

from quarterdeck.agents.catalog import ModelCatalog
from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.conversations.sessions import service
from quarterdeck.conversations.sessions.model import (
    ChangeSessionBody,
    CreateSessionBody,
    SearchIn,
    SessionBody,
    SessionPage,
)
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
    success="One page. next_cursor is null on the last.",
    paged=True,
    cursor_must_exist=False,
    queries=(
        Query("archived", {"type": "boolean", "default": False}, "Whether to list the archived ones instead."),
        Query(
            "search",
            {"type": "string", "maxLength": _SEARCH_CHARACTERS, "pattern": "^[^\\u0000]*$"},
            "Only those whose title contains this, in capitals or not. Empty: all. With in=conversations: those whose "
            "messages have these words, in capitals or not; quotes keep words together, `or` and `-` work as in web "
            "searches.",
            example="incident",
        ),
        Query(
            "in",
            {"type": "string", "enum": list(SearchIn), "default": SearchIn.TITLES},
            "Where to search: in titles, or in the texts of inputs that a run has read and of the agent's messages.",
        ),
    ),
)
async def list_sessions(request: Request, access: Access, models: ModelCatalog) -> SessionPage:
    page, archived = request.page_request(), request.query_flag("archived")
    search = request.query_text("search", most_characters=_SEARCH_CHARACTERS) or None
    search_in = request.query_choice("in", SearchIn) or SearchIn.TITLES
    return await service.list_sessions(
        access, models, request.call_without_body(), page, archived=archived, search=search, search_in=search_in
    )


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
async def create_session(request: Request, changes: Changes, models: ModelCatalog) -> Answer:
    return await service.create_session(changes, models, await request.call(CreateSessionBody))


@operation(
    summary="Show a session",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionBody,
    success="The session. What is said in it is its log.",
    session_token=True,
    etag=True,
)
async def get_session(request: Request, access: Access, models: ModelCatalog) -> SessionBody:
    session_id = request.path_id("session_id")
    return await service.get_session(access, models, request.call_without_body(), session_id)


@operation(
    summary="Change or archive a session",
    description="What is left out stays as it is. A run that is under way goes on as it began; the next one takes up "
    "the change. An archived session refuses input with 409; what it has accepted is still worked on.",
    permission=Permission.SESSION_MANAGE,
    payload=ChangeSessionBody,
    success_type=SessionBody,
    success="The session as it is now.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_session(request: Request, changes: Changes, models: ModelCatalog) -> Answer:
    session_id = request.path_id("session_id")
    return await service.change_session(changes, models, await request.call(ChangeSessionBody), session_id)


@operation(
    summary="Delete a session",
    description="With its log, its runs and its tokens, for good. Its active run is cancelled. Again is 404.",
    permission=Permission.SESSION_MANAGE,
    success_status=204,
    success_type=None,
    success="It is gone.",
    conditional=True,
)
async def delete_session(request: Request, changes: Changes, models: ModelCatalog) -> Answer:
    session_id = request.path_id("session_id")
    return await service.delete_session(changes, models, request.call_without_body(), session_id)
