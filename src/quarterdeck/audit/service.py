"""Reading the audit log, and throwing away what is older than it is kept. Writing it: `trail.py`."""

from uuid import UUID

from quarterdeck.audit import store
from quarterdeck.audit.model import AuditEventBody, AuditEventPage, AuditFilter
from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.db.database import Connection, Database

_SWEEP_BATCH = 1000


async def list_audit_events(
    access: Access, call: Call[None], wanted: AuditFilter, request: PageRequest
) -> AuditEventPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> AuditEventPage:
        async def fetch(start: UUID, count: int) -> list[AuditEventBody]:
            newest_first = request.newest_first
            return await store.page(connection, workspace_id, wanted, start, count, newest_first=newest_first)

        # What a cursor names may have been thrown away since, or not be what is asked for now.
        items, next_cursor = await take_page(request, fetch, lasting=False)
        return AuditEventPage(items, next_cursor)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def sweep_audit_events(database: Database) -> int:
    async def delete(connection: Connection) -> int:
        return await store.delete_old(connection, _SWEEP_BATCH)

    return await database.in_batches(delete, _SWEEP_BATCH)
