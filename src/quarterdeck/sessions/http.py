"""Sessions over HTTP."""

from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import ForkSettings
from quarterdeck.http.downloads import Downloads, safe_name
from quarterdeck.http.operation import Query, Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.sessions import export, service
from quarterdeck.sessions.model import (
    ChangeSessionBody,
    CreateSessionBody,
    ForkSessionBody,
    SearchIn,
    SessionBody,
    SessionPage,
)
from quarterdeck.sessions.sandbox_offer import SandboxOffer

_JSON_LINES, _MARKDOWN = "application/jsonl", "text/markdown"
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
async def create_session(
    request: Request,
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
) -> Answer:
    return await service.create_session(
        access, changes, models, schemas, sandbox, await request.call(CreateSessionBody)
    )


@operation(
    summary="Export a session",
    description="Its whole log, oldest first: JSON Lines with the same objects as the list of events, or, with "
    "`Accept: text/markdown`, a document to read.",
    permission=Permission.WORKSPACE_READ,
    formats=(_JSON_LINES, _MARKDOWN),
    success="The log up to the current end.",
    session_token=True,
)
async def export_session(request: Request, access: Access, models: ModelCatalog, downloads: Downloads) -> Response:
    session_id, call = request.path_id("session_id"), request.call_without_body()
    session = await service.get_session(access, models, call, session_id)
    name = safe_name(session.title or "session")
    if request.prefers(_MARKDOWN, _JSON_LINES):
        pieces = export.as_markdown(access, call, session)
        return downloads.stream(f"{_MARKDOWN}; charset=utf-8", f"{name}.md", pieces)
    return downloads.stream(_JSON_LINES, f"{name}.jsonl", export.json_lines(access, call, session_id))


@operation(
    summary="Fork a session",
    description="A new session with the same settings, with the files of this one as they are now, and with its log, "
    "or the part before an event. ` (fork)` is added to its title. Inputs that no run has consumed and the active run "
    "are not copied. The copied runs exist only in the log: lists of runs contain those that the fork starts itself.",
    permission=Permission.SESSION_MANAGE,
    payload=ForkSessionBody,
    success_status=201,
    success_type=SessionBody,
    success="The new session. The first event of its log is session.forked.",
    idempotent=True,
    etag=True,
    refusals=(
        Refusal(
            "fork_too_large",
            errors.fork_too_large(),
            "The log that would be copied has more events or bytes than the server's settings allow.",
            "Fork before an earlier event, or have the limits raised.",
        ),
    ),
)
async def fork_session(request: Request, changes: Changes, models: ModelCatalog, settings: ForkSettings) -> Answer:
    session_id = request.path_id("session_id")
    return await service.fork_session(changes, models, settings, await request.call(ForkSessionBody), session_id)


@operation(
    summary="Get a session",
    permission=Permission.WORKSPACE_READ,
    success_type=SessionBody,
    success="The session. Its messages are in its log.",
    session_token=True,
    etag=True,
)
async def get_session(request: Request, access: Access, models: ModelCatalog) -> SessionBody:
    session_id = request.path_id("session_id")
    return await service.get_session(access, models, request.call_without_body(), session_id)


@operation(
    summary="Change or archive a session",
    description="Changes only the given fields. tool_policy and limits apply at once; the active run keeps the rest as "
    "it was at its start. Runs that wait at a limit continue soon after it was raised or removed. An archived session "
    "answers input with 409; inputs that it has accepted are still processed.",
    permission=Permission.SESSION_MANAGE,
    payload=ChangeSessionBody,
    success_type=SessionBody,
    success="The changed session.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_session(
    request: Request,
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
) -> Answer:
    session_id = request.path_id("session_id")
    return await service.change_session(
        access, changes, models, schemas, sandbox, await request.call(ChangeSessionBody), session_id
    )


@operation(
    summary="Delete a session",
    description="Permanently deletes the session with its log, runs, files and tokens. Its active run is cancelled. "
    "Deleting again returns 404.",
    permission=Permission.SESSION_MANAGE,
    success_status=204,
    success_type=None,
    success="The session is deleted.",
    conditional=True,
)
async def delete_session(request: Request, changes: Changes, models: ModelCatalog) -> Answer:
    session_id = request.path_id("session_id")
    return await service.delete_session(changes, models, request.call_without_body(), session_id)
