"""SQL for API keys."""

from typing import Any
from uuid import UUID

from quarterdeck.api_keys.model import ApiKeyBody, NewApiKey, RotatedKey
from quarterdeck.core.actors import ActorBody, Permission
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection

_ADD = """
INSERT INTO api_keys
    (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT k.id, k.label, k.prefix, k.permissions, k.expires_at, k.last_used_at, k.revoked_at,
       u.id, u.display_name, u.email
FROM api_keys k JOIN users u ON u.id = k.created_by
WHERE k.workspace_id = %s AND k.id = %s
"""
# Includes the row of the cursor: if it is missing, the cursor does not belong to this list. The workspace is part of
# the bounds and of the order so that only the index (workspace_id, id) fits: with `workspace_id = …`, PostgreSQL
# searched the keys of all workspaces for the few of a small one.
_NEWEST_FIRST = """
SELECT k.id, k.label, k.prefix, k.permissions, k.expires_at, k.last_used_at, k.revoked_at,
       u.id, u.display_name, u.email
FROM api_keys k JOIN users u ON u.id = k.created_by
WHERE (k.workspace_id, k.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY k.workspace_id DESC, k.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT k.id, k.label, k.prefix, k.permissions, k.expires_at, k.last_used_at, k.revoked_at,
       u.id, u.display_name, u.email
FROM api_keys k JOIN users u ON u.id = k.created_by
WHERE (k.workspace_id, k.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY k.workspace_id, k.id LIMIT %s
"""
_ACTIVE_OF_USER = "SELECT id FROM api_keys WHERE workspace_id = %s AND created_by = %s AND revoked_at IS NULL"
_REVOKE_ALL = """
UPDATE api_keys SET revoked_at = clock_timestamp()
WHERE workspace_id = %s AND id = ANY (%s) AND revoked_at IS NULL RETURNING id
"""
_MAX_DAYS = "SELECT max_key_days FROM workspaces WHERE id = %s"
# A separate statement: the second of two concurrent rotations must see that the first replaced the key.
_LOCK = """
SELECT lineage_id, replaced_by IS NOT NULL,
       revoked_at IS NOT NULL OR coalesce(expires_at <= clock_timestamp(), false)
FROM api_keys WHERE workspace_id = %s AND id = %s FOR NO KEY UPDATE
"""
_REPLACE = """
UPDATE api_keys
SET replaced_by = %s,
    expires_at = CASE WHEN %s = 0 THEN expires_at
                      ELSE least(expires_at, clock_timestamp() + make_interval(secs => %s)) END,
    revoked_at = CASE WHEN %s = 0 THEN clock_timestamp() END
WHERE workspace_id = %s AND id = %s
"""
_REVOKE = """
UPDATE api_keys SET revoked_at = clock_timestamp() WHERE workspace_id = %s AND id = %s AND revoked_at IS NULL
"""
_OF_USER = """
SELECT k.id, k.label, k.prefix, k.permissions, k.expires_at, k.last_used_at, k.revoked_at,
       u.id, u.display_name, u.email
FROM api_keys k JOIN users u ON u.id = k.created_by
WHERE (k.workspace_id, k.id) BETWEEN (%s, %s) AND (%s, %s) AND k.created_by = %s
ORDER BY k.workspace_id, k.id
"""


async def add(connection: Connection, key: NewApiKey) -> None:
    await connection.execute(
        _ADD,
        (
            key.id,
            key.workspace_id,
            key.lineage_id,
            key.label,
            key.prefix,
            key.secret_hash,
            [str(permission) for permission in key.permissions],
            key.created_by,
            key.expires_at,
        ),
    )


async def get(connection: Connection, workspace_id: UUID, api_key_id: UUID) -> ApiKeyBody | None:
    row = await (await connection.execute(_GET, (workspace_id, api_key_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[ApiKeyBody]:
    """`count` keys from `start` on, inclusive."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    # Binary results: for 50 keys, ids and lists as text cost 27 µs more on each side.
    rows = await (await connection.execute(query, values, binary=True)).fetchall()
    return [_body(row) for row in rows]


async def max_days(connection: Connection, workspace_id: UUID) -> int | None:
    row = await (await connection.execute(_MAX_DAYS, (workspace_id,))).fetchone()
    assert row is not None
    days: int | None = row[0]
    return days


async def lock(connection: Connection, workspace_id: UUID, api_key_id: UUID) -> RotatedKey:
    row = await (await connection.execute(_LOCK, (workspace_id, api_key_id))).fetchone()
    assert row is not None
    return RotatedKey(*row)


async def replace(
    connection: Connection, workspace_id: UUID, api_key_id: UUID, replaced_by: UUID, overlap_seconds: int
) -> None:
    """The old key expires after the overlap, or at its own expiry if that is earlier."""
    overlap = (overlap_seconds, overlap_seconds, overlap_seconds)
    await connection.execute(_REPLACE, (replaced_by, *overlap, workspace_id, api_key_id))


async def revoke(connection: Connection, workspace_id: UUID, api_key_id: UUID) -> bool:
    """False if the key was revoked already."""
    return (await connection.execute(_REVOKE, (workspace_id, api_key_id))).rowcount == 1


async def active_of_user(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[UUID]:
    return [row[0] for row in await (await connection.execute(_ACTIVE_OF_USER, (workspace_id, user_id))).fetchall()]


async def revoke_all(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> list[UUID]:
    """Returns the ids of the keys that were not revoked before."""
    return [row[0] for row in await (await connection.execute(_REVOKE_ALL, (workspace_id, ids))).fetchall()]


async def of_user(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[ApiKeyBody]:
    values = (workspace_id, LOWEST_ID, workspace_id, HIGHEST_ID, user_id)
    rows = await (await connection.execute(_OF_USER, values)).fetchall()
    return [_body(row) for row in rows]


def _body(row: tuple[Any, ...]) -> ApiKeyBody:
    api_key_id, label, prefix, permissions, expires_at, last_used_at, revoked_at, user_id, name, email = row
    return ApiKeyBody(
        id=api_key_id,
        label=label,
        prefix=prefix,
        permissions=[Permission(permission) for permission in permissions],
        created_at=created_at(api_key_id),
        created_by=ActorBody(user_id, name, email),
        expires_at=expires_at,
        last_used_at=last_used_at,
        revoked_at=revoked_at,
    )
