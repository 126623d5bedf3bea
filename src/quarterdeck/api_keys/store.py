"""SQL for API keys."""

from uuid import UUID

from quarterdeck.api_keys.model import ApiKeyBody, CreateApiKeyBody, RotatedKey
from quarterdeck.core.ids import LOWEST_ID, new_id
from quarterdeck.core.secrets import Secret
from quarterdeck.db.database import Connection
from quarterdeck.db.records import Records, fetch_column, fetch_record, fetch_value

_ADD = """
INSERT INTO api_keys
    (id, workspace_id, lineage_id, created_by, label, prefix, secret_hash, permissions, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_OF_USER = "of one user"
_KEYS = Records(
    ApiKeyBody,
    table="api_keys",
    columns="""r.id, r.label, r.prefix, r.permissions, r.expires_at, r.last_used_at, r.revoked_at,
        actor(u) AS created_by""",
    joins="JOIN users u ON u.id = r.created_by",
    filters={None: "true", _OF_USER: "created_by = %s"},
)
get, page = _KEYS.get, _KEYS.page
_ACTIVE_OF_USER = "SELECT id FROM api_keys WHERE workspace_id = %s AND created_by = %s AND revoked_at IS NULL"
_REVOKE_ALL = """
UPDATE api_keys SET revoked_at = clock_timestamp()
WHERE workspace_id = %s AND id = ANY (%s) AND revoked_at IS NULL RETURNING id
"""
_MAX_DAYS = "SELECT max_key_days FROM workspaces WHERE id = %s"
# A separate statement: the second of two concurrent rotations must see that the first replaced the key.
_LOCK = """
SELECT lineage_id, replaced_by IS NOT NULL AS is_replaced,
       revoked_at IS NOT NULL OR coalesce(expires_at <= clock_timestamp(), false) AS has_ended
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


async def add(
    connection: Connection,
    workspace_id: UUID,
    created_by: UUID,
    secret: Secret,
    body: CreateApiKeyBody,
    lineage_id: UUID | None = None,
) -> ApiKeyBody:
    """`lineage_id`: the first key of its chain of rotations. None: this one."""
    key_id = new_id()
    owner = (key_id, workspace_id, lineage_id or key_id, created_by)
    values = (body.label, secret.prefix, secret.hash, body.permissions, body.expires_at)
    await connection.execute(_ADD, (*owner, *values))
    stored = await get(connection, workspace_id, key_id)
    assert stored is not None
    return stored


async def max_days(connection: Connection, workspace_id: UUID) -> int | None:
    return await fetch_value(connection, _MAX_DAYS, (workspace_id,))


async def lock(connection: Connection, workspace_id: UUID, api_key_id: UUID) -> RotatedKey:
    found = await fetch_record(connection, RotatedKey, _LOCK, (workspace_id, api_key_id))
    assert found is not None
    return found


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
    return await fetch_column(connection, _ACTIVE_OF_USER, (workspace_id, user_id))


async def revoke_all(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> list[UUID]:
    """Returns the ids of the keys that were not revoked before."""
    return await fetch_column(connection, _REVOKE_ALL, (workspace_id, ids))


async def of_user(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[ApiKeyBody]:
    """All keys that the user has created, oldest first."""
    return await page(connection, workspace_id, LOWEST_ID, None, user_id, filter_key=_OF_USER, newest_first=False)
