"""Sessions over HTTP."""

from uuid import UUID

from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Call
from quarterdeck.core.operation import operation
from quarterdeck.http.downloads import Downloads, safe_name
from quarterdeck.http.request import Request
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.sessions import export, service

_JSON_LINES, _MARKDOWN = "application/jsonl", "text/markdown"


@operation(
    summary="Export a session",
    description="Its whole log, oldest first: JSON Lines with the same objects as the list of events, or, with "
    "`Accept: text/markdown`, a document to read.",
    permission=Permission.WORKSPACE_READ,
    formats=(_JSON_LINES, _MARKDOWN),
    success="The log up to the current end.",
    session_token=True,
)
async def export_session(
    request: Request, access: Access, models: ModelCatalog, downloads: Downloads, call: Call[None], session_id: UUID
) -> Response:
    session = await service.get_session(access, models, call, session_id)
    name = safe_name(session.title or "session")
    if request.prefers(_MARKDOWN, _JSON_LINES):
        pieces = export.as_markdown(access, call, session)
        return downloads.stream(f"{_MARKDOWN}; charset=utf-8", f"{name}.md", pieces)
    return downloads.stream(_JSON_LINES, f"{name}.jsonl", export.json_lines(access, call, session_id))
