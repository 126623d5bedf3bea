"""The audit log: read it, write to it, and delete expired entries.

An entry is written in the transaction of its change, so neither exists without the other.
"""

from functools import partial
from uuid import UUID

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.changes import store
from quarterdeck.changes.model import Actor, AuditEventPage, AuditQuery, Change
from quarterdeck.core.actors import Origin, Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.ids import LOWEST_ID, new_id
from quarterdeck.core.operation import operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.walks import walk

_DELETE_BATCH = 1000


@operation(
    summary="List audit events",
    description="One event for each change by the API or the operator. Inputs are not included: they are in the log "
    "of their session. One page per call, newest first unless order=asc. Events are kept for a year by default.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_audit_events(
    access: Access, call: Call[None], filters: AuditQuery, request: PageRequest
) -> AuditEventPage:
    # The event of the cursor may have expired, or may not match the filter of this call.
    return await access.page(
        call, visible_workspace(call), AuditEventPage, request, store.page_of_audit_events, filters=filters
    )


async def record_change(connection: Connection, principal: Principal, origin: Origin, change: Change) -> None:
    by = Actor(
        principal.user_id,
        principal.api_key_id,
        principal.session_token_id,
        principal.device_id,
        principal.trusted_job_id,
    )
    await store.add_audit_event(connection, new_id(), principal.workspace_id, change, by, origin)


async def record_person_change(
    connection: Connection, workspace_id: UUID, user_id: UUID, device_id: UUID | None, origin: Origin, change: Change
) -> None:
    """For a person who is signing in, or who acts in another workspace than that of the request."""
    by = Actor(user_id, device_id=device_id)
    await store.add_audit_event(connection, new_id(), workspace_id, change, by, origin)


async def record_actor_change(
    connection: Connection, workspace_id: UUID, by: Actor, origin: Origin, change: Change
) -> None:
    """For a job that is asking for a key."""
    await store.add_audit_event(connection, new_id(), workspace_id, change, by, origin)


async def record_operator_change(connection: Connection, workspace_id: UUID, change: Change) -> None:
    """For changes by `qd admin`, which uses no credential."""
    await store.add_audit_event(connection, new_id(), workspace_id, change, Actor(), Origin())


async def sweep_audit_events(database: Database) -> int:
    return await walk(database, partial(store.delete_old_audit_events, batch=_DELETE_BATCH), LOWEST_ID, _DELETE_BATCH)
