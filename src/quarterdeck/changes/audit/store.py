"""SQL for audit events. Events are added and, when they expire, deleted; never changed."""

from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.changes.audit.model import AuditEventBody, AuditQuery, Change
from quarterdeck.core.actors import Origin, Principal
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, first_id_at
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_records
from quarterdeck.db.walks import BatchResult, fetch_step

_ADD = """
INSERT INTO audit_events
    (id, workspace_id, action, object_type, object_id, object_name, user_id, api_key_id, session_token_id, address,
     request_id, detail)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
# Titles are content: they are not stored here, so that they are gone with their session.
_TITLE = "(SELECT s.title FROM sessions s WHERE s.id = a.object_id AND s.workspace_id = a.workspace_id)"
# Filters with an index of their own, most selective first. A list is searched by the first one that is given; the other
# filters are applied to the rows found.
_INDEXED_FILTERS = ("object_id", "action", "user_id", "object_type")


def _page_query(indexed: str | None, *, newest_first: bool) -> str:
    """Written so that PostgreSQL can use only the intended index: ORDER BY names the filtered column, row bounds
    replace "=", and coalesce hides the other filters. With "action = … ORDER BY id", a plan cached while the table was
    empty could walk the index of all events."""
    columns = [f"a.{indexed or 'workspace_id'}", "a.id"]
    key, bound = f"({', '.join(columns)})", f"({', '.join(['%s'] * len(columns))})"
    order = ", ".join(f"{column} {'DESC' if newest_first else 'ASC'}" for column in columns)
    # No other condition on the indexed columns: the index scan would start there and not at the cursor.
    equal = "a.workspace_id = %s AND " if indexed else ""
    # All parts of the statement are constants above.
    return f"""
SELECT a.id, a.action, a.object_type, a.object_id,
       CASE a.object_type WHEN 'session' THEN {_TITLE} ELSE a.object_name END AS object_name,
       CASE WHEN a.user_id IS NOT NULL THEN actor(u) END AS actor, a.api_key_id, a.session_token_id, a.address,
       a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE {equal}{key} >= {bound} AND {key} < {bound}
  AND coalesce(a.action = %s, %s::text IS NULL) AND coalesce(a.user_id = %s, %s::uuid IS NULL)
  AND coalesce(a.object_type = %s, %s::text IS NULL)
ORDER BY {order} LIMIT %s
"""  # noqa: S608


_PAGES = {
    (indexed, newest_first): _page_query(indexed, newest_first=newest_first)
    for indexed in (None, *_INDEXED_FILTERS)
    for newest_first in (True, False)
}
_EXPIRE = "SELECT deleted, entries_read, last_id FROM expire_audit_entries(%s, %s)"


async def add(
    connection: Connection,
    event_id: UUID,
    workspace_id: UUID,
    change: Change,
    principal: Principal | None,
    origin: Origin,
) -> None:
    actor: tuple[UUID | None, ...] = (None, None, None)
    if principal is not None:
        actor = (principal.user_id, principal.api_key_id, principal.session_token_id)
    await connection.execute(
        _ADD,
        (
            event_id,
            workspace_id,
            change.action,
            change.object_type,
            change.object_id,
            change.object_name,
            *actor,
            origin.address,
            origin.request_id,
            Jsonb(change.detail),
        ),
    )


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, filters: AuditQuery, newest_first: bool
) -> list[AuditEventBody]:
    """`count` events from `start` on, inclusive."""
    query, values = _page(workspace_id, filters, start, newest_first=newest_first)
    return await fetch_records(connection, AuditEventBody, query, (*values, count))


async def delete_old(connection: Connection, after: UUID, batch: int) -> BatchResult:
    """The retention period is stored in the database, where the API's role cannot shorten it."""
    return await fetch_step(connection, _EXPIRE, (batch, after))


def _page(
    workspace_id: UUID, filters: AuditQuery, start: UUID, *, newest_first: bool
) -> tuple[str, tuple[object, ...]]:
    """The statement and its parameters without the limit."""
    first, end = _span(filters, start, newest_first=newest_first)
    indexed = next((name for name in _INDEXED_FILTERS if getattr(filters, name) is not None), None)
    value = workspace_id if indexed is None else getattr(filters, indexed)
    equal = () if indexed is None else (workspace_id,)
    others = (
        filters.action,
        filters.action,
        filters.user_id,
        filters.user_id,
        filters.object_type,
        filters.object_type,
    )
    return _PAGES[indexed, newest_first], (*equal, value, first, value, end, *others)


def _span(filters: AuditQuery, start: UUID, *, newest_first: bool) -> tuple[UUID, UUID]:
    """The range of ids of the page: first (inclusive) and end (exclusive)."""
    first = LOWEST_ID if filters.since is None else first_id_at(filters.since)
    end = HIGHEST_ID if filters.until is None else first_id_at(filters.until)
    if newest_first:
        return first, min(end, UUID(int=min(start.int + 1, HIGHEST_ID.int)))
    return max(first, start), end
