"""Receipts: the stored responses of requests with an Idempotency-Key."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_record
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


async def lock(connection: Connection, claim: Claim) -> None:
    """A statement of its own: the second of two requests must see the receipt of the first."""
    await connection.execute(_LOCK, (claim.scope_id, claim.operation, claim.key))


async def find(connection: Connection, claim: Claim) -> Receipt | None:
    return await fetch_record(connection, Receipt, _FIND, (claim.scope_id, claim.operation, claim.key))


async def save(connection: Connection, claim: Claim, body: bytes) -> None:
    await connection.execute(_SAVE, (claim.scope_id, claim.operation, claim.key, claim.fingerprint, body))


async def delete_old(connection: Connection, after: datetime, days: int, shortest_days: int, batch: int) -> BatchResult:
    """A batch of those that were stored at `after` or later. `days`: the retention of the server. `shortest_days`: of
    all workspaces."""
    return await fetch_step(connection, _DELETE_OLD, (days, after, shortest_days, batch))
