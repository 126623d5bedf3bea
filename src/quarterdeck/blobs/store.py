"""SQL for blobs. A blob is in use while a row refers to it; `sweep_blobs` deletes unused ones."""

from collections.abc import Mapping, Sequence

import msgspec

from quarterdeck.blobs.model import Blob, StoredBlob
from quarterdeck.db.database import Connection
from quarterdeck.db.records import Values, fetch_bool, fetch_column, fetch_int

# JSON texts instead of arrays: psycopg takes long to write arrays of many values.
_TOUCH = """
INSERT INTO blobs (sha256, generation, bytes)
SELECT decode(one.key, 'hex'), gen_random_uuid(), one.value::bigint FROM json_each_text(%s::json) AS one
ON CONFLICT (sha256) DO UPDATE SET touched_at = clock_timestamp()
RETURNING sha256, generation
"""
_FIND = """
SELECT sha256, generation FROM blobs
WHERE sha256 = ANY (ARRAY(SELECT decode(one, 'hex') FROM json_array_elements_text(%s::json) AS one))
"""
# db/functions/blobs.sql names all tables that refer to blobs. Foreign keys keep a blob that is missed there.
_OLD = """
SELECT b.sha256 FROM blobs b
WHERE b.touched_at < clock_timestamp() - make_interval(hours => %s) AND NOT is_blob_used(b.sha256)
ORDER BY b.touched_at LIMIT %s
"""
# Whoever is adding a reference locks this row by the foreign key.
_LOCK_OLD = """
SELECT FROM blobs
WHERE sha256 = %s AND touched_at < clock_timestamp() - make_interval(hours => %s)
FOR UPDATE SKIP LOCKED
"""
_IN_USE = "SELECT is_blob_used(%s)"
_CONDEMN = """
WITH gone AS (DELETE FROM blobs WHERE sha256 = %s RETURNING sha256, generation)
INSERT INTO condemned_blobs (sha256, generation) SELECT sha256, generation FROM gone
"""
_CONDEMNED = "SELECT sha256, generation FROM condemned_blobs LIMIT %s"
_FORGET = "DELETE FROM condemned_blobs WHERE sha256 = %s AND generation = %s"
_BYTES = "SELECT coalesce(sum(bytes), 0)::bigint FROM blobs"
_BETWEEN = "SELECT sha256, generation, bytes FROM blobs WHERE sha256 BETWEEN %s AND %s ORDER BY sha256"
_TOUCH_STORED = "UPDATE blobs SET touched_at = clock_timestamp() WHERE sha256 = %s AND generation = %s"


async def touch(connection: Connection, sizes: Mapping[str, int]) -> list[Blob]:
    """The blobs under which contents are or will be stored, with new generations where there was no row. Sorted, so
    that two transactions do not wait for each other."""
    return await _fetch_blobs(connection, _TOUCH, (msgspec.json.encode(dict(sorted(sizes.items()))).decode(),))


async def find(connection: Connection, sha256s: Sequence[str]) -> list[Blob]:
    return await _fetch_blobs(connection, _FIND, (msgspec.json.encode(sha256s).decode(),))


async def old(connection: Connection, hours: int, count: int) -> list[bytes]:
    return await fetch_column(connection, _OLD, (hours, count))


async def lock_unused(connection: Connection, sha256: bytes, hours: int) -> bool:
    """Whether the blob is still old and unused. If so, its row is locked."""
    if (await connection.execute(_LOCK_OLD, (sha256, hours))).rowcount != 1:
        return False
    # A statement of its own: it must see a reference that was committed while the lock was waited for.
    return not await fetch_bool(connection, _IN_USE, (sha256,))


async def condemn(connection: Connection, sha256: bytes) -> None:
    await connection.execute(_CONDEMN, (sha256,))


async def condemned(connection: Connection, count: int) -> list[Blob]:
    return await _fetch_blobs(connection, _CONDEMNED, (count,))


async def forget(connection: Connection, blob: Blob) -> None:
    await connection.execute(_FORGET, (bytes.fromhex(blob.sha256), blob.generation))


async def total_bytes(connection: Connection) -> int:
    return await fetch_int(connection, _BYTES)


async def starting_with(connection: Connection, first_byte: int) -> list[StoredBlob]:
    """All blobs whose SHA-256 has this first byte."""
    first, last = bytes([first_byte]) + bytes(31), bytes([first_byte]) + b"\xff" * 31
    rows = await (await connection.execute(_BETWEEN, (first, last))).fetchall()
    return [StoredBlob(Blob(sha256.hex(), generation), size) for sha256, generation, size in rows]


async def touch_stored(connection: Connection, blob: Blob) -> bool:
    """Keeps the sweep from deleting it for some time. False: it was deleted."""
    values = (bytes.fromhex(blob.sha256), blob.generation)
    return (await connection.execute(_TOUCH_STORED, values)).rowcount == 1


async def is_used(connection: Connection, blob: Blob) -> bool:
    return await fetch_bool(connection, _IN_USE, (bytes.fromhex(blob.sha256),))


async def _fetch_blobs(connection: Connection, query: str, values: Values) -> list[Blob]:
    rows = await (await connection.execute(query, values)).fetchall()
    return [Blob(sha256.hex(), generation) for sha256, generation in rows]
