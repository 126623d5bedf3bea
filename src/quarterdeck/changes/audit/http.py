"""The audit log over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.audit import service
from quarterdeck.changes.audit.model import AuditEventPage, AuditFilter, ObjectType
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request
from quarterdeck.http.schemas import MOMENT, UUID

_ACTION = {"type": "string", "pattern": "^[^\\u0000]*$"}
_OBJECT_TYPE = {"type": "string", "enum": list(ObjectType)}


@operation(
    summary="List audit events",
    description="One event for each change by the API or the operator. Inputs are not included: they are in the log "
    "of their session. One page per call, newest first unless order=asc. Events are kept for a year by default.",
    permission=Permission.WORKSPACE_READ,
    success_type=AuditEventPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
    queries=(
        Query("action", _ACTION, "Only events with this action."),
        Query("object_type", _OBJECT_TYPE, "Only events for objects of this type."),
        Query("object_id", UUID, "Only events for this object, even if it no longer exists."),
        Query("user_id", UUID, "Only events caused by this person's credentials."),
        Query("since", MOMENT, "Only events at or after this time."),
        Query("until", MOMENT, "Only events before this time."),
    ),
)
async def list_audit_events(request: Request, access: Access) -> AuditEventPage:
    filters = AuditFilter(
        action=request.query_text("action"),
        object_type=request.query_choice("object_type", ObjectType),
        object_id=request.query_id("object_id"),
        user_id=request.query_id("user_id"),
        since=request.query_moment("since"),
        until=request.query_moment("until"),
    )
    page = request.page_request()
    return await service.list_audit_events(access, request.call_without_body(), filters, page)
