"""SQL for receipts, the stored responses of requests with an Idempotency-Key, and for the audit log, whose events are
added and, when they expire, deleted, but never changed."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple
from psycopg.types.json import Jsonb

from quarterdeck.changes.model import Actor, AuditEventBody, AuditQuery, Change
from quarterdeck.core.actors import Origin
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, first_id_at
from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_record, fetch_records
from quarterdeck.db.walks import BatchResult, fetch_step

_LOCK = "SELECT pg_advisory_xact_lock(receipt_lock(%s, %s, %s))"
_FIND = "SELECT fingerprint, body FROM receipts WHERE scope_id = %s AND operation = %s AND key = %s"
_SAVE = "INSERT INTO receipts (scope_id, operation, key, fingerprint, body) VALUES (%s, %s, %s, %s, %s)"
# The scope is the first key of a chain, or the session of a token. A deleted session has no workspace: the retention of
# the server applies to it. One minute more than promised, because created_at is a little earlier than the commit.
# now(), because the volatile clock_timestamp() would prevent an index scan. By ctid: with IN (SELECT …) PostgreSQL
# would read the whole table for every batch to join it. Several receipts may have one time, so the next batch begins at
# the last time again, unless all of this batch are kept. Then those of its last time that did not fit into it wait
# for a later round: they are few, and only deleted later.
_DELETE_OLD = """
WITH old AS (
    SELECT r.ctid AS row_ctid, r.created_at,
           r.created_at < now() - make_interval(
               days => coalesce((w.retention->>'receipt_days')::integer, %s), mins => 1
           ) AS is_expired
    FROM receipts r
    LEFT JOIN api_keys k ON k.id = r.scope_id LEFT JOIN sessions s ON s.id = r.scope_id
    LEFT JOIN workspaces w ON w.id = coalesce(k.workspace_id, s.workspace_id)
    WHERE r.created_at >= %s AND r.created_at < now() - make_interval(days => %s, mins => 1)
    ORDER BY r.created_at LIMIT %s
), gone AS (
    DELETE FROM receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM receipts
        WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM old WHERE is_expired)) FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
), counted AS (
    SELECT count(*) AS receipts FROM gone
)
SELECT counted.receipts, count(old.row_ctid),
       max(old.created_at) + CASE WHEN counted.receipts = 0 THEN interval '1 microsecond' ELSE interval '0' END
FROM counted LEFT JOIN old ON true GROUP BY counted.receipts
"""


class Claim(Struct, frozen=True):
    """An Idempotency-Key with its scope and fingerprint."""

    scope_id: UUID
    operation: str
    key: str
    fingerprint: bytes


class Receipt(Struct, frozen=True):
    fingerprint: bytes
    body: bytes


async def lock_receipt(connection: Connection, claim: Claim) -> None:
    """A statement of its own: the second of two requests must see the receipt of the first."""
    await connection.execute(_LOCK, (claim.scope_id, claim.operation, claim.key))


async def find_receipt(connection: Connection, claim: Claim) -> Receipt | None:
    return await fetch_record(connection, Receipt, _FIND, (claim.scope_id, claim.operation, claim.key))


async def save_receipt(connection: Connection, claim: Claim, body: bytes) -> None:
    await connection.execute(_SAVE, (claim.scope_id, claim.operation, claim.key, claim.fingerprint, body))


async def delete_old_receipts(
    connection: Connection, after: datetime, days: int, shortest_days: int, batch: int
) -> BatchResult:
    """A batch of those that were stored at `after` or later. `days`: the retention of the server. `shortest_days`: of
    all workspaces."""
    return await fetch_step(connection, _DELETE_OLD, (days, after, shortest_days, batch))


_ADD = """
INSERT INTO audit_events
    (id, workspace_id, action, object_type, object_id, object_name, user_id, api_key_id, session_token_id, device_id,
     trusted_job_id, address, request_id, detail)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
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
       CASE WHEN a.user_id IS NOT NULL THEN actor(u) END AS actor, a.api_key_id, a.session_token_id, a.device_id,
       a.trusted_job_id, a.address, a.request_id, a.detail
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


async def add_audit_event(
    connection: Connection,
    event_id: UUID,
    workspace_id: UUID,
    change: Change,
    actor: Actor,
    origin: Origin,
) -> None:
    await connection.execute(
        _ADD,
        (
            event_id,
            workspace_id,
            change.action,
            change.object_type,
            change.object_id,
            change.object_name,
            *astuple(actor),
            origin.address,
            origin.request_id,
            Jsonb(change.detail),
        ),
    )


async def page_of_audit_events(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, filters: AuditQuery, newest_first: bool
) -> list[AuditEventBody]:
    """`count` events from `start` on, inclusive."""
    query, values = _page(workspace_id, filters, start, newest_first=newest_first)
    return await fetch_records(connection, AuditEventBody, query, (*values, count))


async def delete_old_audit_events(connection: Connection, after: UUID, batch: int) -> BatchResult:
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
