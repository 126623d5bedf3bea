"""Receipts: the stored responses of requests with an Idempotency-Key."""

from uuid import UUID

from msgspec import Struct

from quarterdeck.db.database import Connection

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 2))"
_FIND = "SELECT fingerprint, body FROM receipts WHERE scope_id = %s AND operation = %s AND key = %s"
_SAVE = "INSERT INTO receipts (scope_id, operation, key, fingerprint, body) VALUES (%s, %s, %s, %s, %s)"
# One minute more than promised, because created_at is a little earlier than the commit. now(), because the volatile
# clock_timestamp() would prevent an index scan. By ctid: with IN (SELECT …) PostgreSQL would read the whole table for
# every batch to join it.
_DELETE_OLD = """
DELETE FROM receipts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM receipts
    WHERE created_at < now() - make_interval(days => %s, mins => 1)
    ORDER BY created_at LIMIT %s
    FOR UPDATE SKIP LOCKED
))
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
    await connection.execute(_LOCK, (f"{claim.scope_id} {claim.operation} {claim.key}",))


async def find(connection: Connection, claim: Claim) -> Receipt | None:
    row = await (await connection.execute(_FIND, (claim.scope_id, claim.operation, claim.key))).fetchone()
    return None if row is None else Receipt(*row)


async def save(connection: Connection, claim: Claim, body: bytes) -> None:
    await connection.execute(_SAVE, (claim.scope_id, claim.operation, claim.key, claim.fingerprint, body))


async def delete_old(connection: Connection, keep_days: int, batch: int) -> int:
    return (await connection.execute(_DELETE_OLD, (keep_days, batch))).rowcount
