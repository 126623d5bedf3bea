"""SQL of credentials. Secrets are encrypted before they get here."""

from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.connections.credentials.model import CredentialBody, CredentialType, Parameters, StoredCredential
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection

_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(stored_credentials_lock(%s))"
_COUNT = "SELECT count(*) FROM credentials WHERE workspace_id = %s"
_NAME_TAKEN = "SELECT EXISTS (SELECT FROM credentials WHERE workspace_id = %s AND name = %s)"
_ADD = """
INSERT INTO credentials (id, workspace_id, name, kind, parameters, secret, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT c.id, c.name, c.kind, c.parameters, c.rotated_at, c.revision, u.id, u.display_name, u.email
FROM credentials c JOIN users u ON u.id = c.created_by
WHERE c.workspace_id = %s AND c.id = %s
"""
_LOCK = "SELECT FROM credentials WHERE workspace_id = %s AND id = %s FOR UPDATE"
# Until the end of the transaction it cannot be deleted.
_HOLD = "SELECT FROM credentials WHERE workspace_id = %s AND id = %s FOR KEY SHARE"
# The workspace is part of the bounds and of the order, so that the planner can use only the matching index: as in
# api_keys/store.py.
_NEWEST_FIRST = """
SELECT c.id, c.name, c.kind, c.parameters, c.rotated_at, c.revision, u.id, u.display_name, u.email
FROM credentials c JOIN users u ON u.id = c.created_by
WHERE (c.workspace_id, c.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY c.workspace_id DESC, c.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT c.id, c.name, c.kind, c.parameters, c.rotated_at, c.revision, u.id, u.display_name, u.email
FROM credentials c JOIN users u ON u.id = c.created_by
WHERE (c.workspace_id, c.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY c.workspace_id, c.id LIMIT %s
"""
_ROTATE = """
UPDATE credentials SET secret = %s, rotated_at = clock_timestamp(), revision = revision + 1
WHERE workspace_id = %s AND id = %s
"""
_IS_USED = "SELECT EXISTS (SELECT FROM mcp_servers WHERE workspace_id = %s AND credential_id = %s)"
_DELETE = "DELETE FROM credentials WHERE workspace_id = %s AND id = %s"
_STORED = "SELECT id, kind, parameters, secret, revision FROM credentials WHERE workspace_id = %s AND id = %s"
_SECRETS = "SELECT id, secret FROM credentials ORDER BY id FOR UPDATE"
_SET_SECRET = "UPDATE credentials SET secret = %s WHERE id = %s"


async def lock_workspace(connection: Connection, workspace_id: UUID) -> None:
    await connection.execute(_LOCK_WORKSPACE, (workspace_id,))


async def count(connection: Connection, workspace_id: UUID) -> int:
    row = await (await connection.execute(_COUNT, (workspace_id,))).fetchone()
    assert row is not None
    found: int = row[0]
    return found


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    return await _exists(connection, _NAME_TAKEN, (workspace_id, name))


async def add(
    connection: Connection, workspace_id: UUID, created_by: UUID, name: str, credential: StoredCredential
) -> None:
    parameters = Jsonb(msgspec.to_builtins(credential.parameters))
    values = (credential.id, workspace_id, name, credential.kind, parameters, credential.secret, created_by)
    await connection.execute(_ADD, values)


async def get(connection: Connection, workspace_id: UUID, credential_id: UUID) -> CredentialBody | None:
    row = await (await connection.execute(_GET, (workspace_id, credential_id))).fetchone()
    return None if row is None else _body(row)


async def lock(connection: Connection, workspace_id: UUID, credential_id: UUID) -> None:
    """A separate statement, so that the next read sees what the previous holder of the lock committed."""
    await connection.execute(_LOCK, (workspace_id, credential_id))


async def hold(connection: Connection, workspace_id: UUID, credential_id: UUID) -> bool:
    """Whether it exists. It is not deleted before the end of the transaction."""
    return (await connection.execute(_HOLD, (workspace_id, credential_id))).rowcount == 1


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[CredentialBody]:
    """`count` credentials from `start`, inclusive."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    rows = await (await connection.execute(query, values)).fetchall()
    return [_body(row) for row in rows]


async def rotate(connection: Connection, workspace_id: UUID, credential_id: UUID, secret: bytes) -> None:
    await connection.execute(_ROTATE, (secret, workspace_id, credential_id))


async def is_used(connection: Connection, workspace_id: UUID, credential_id: UUID) -> bool:
    return await _exists(connection, _IS_USED, (workspace_id, credential_id))


async def delete(connection: Connection, workspace_id: UUID, credential_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, credential_id))


async def stored(connection: Connection, workspace_id: UUID, credential_id: UUID) -> StoredCredential | None:
    row = await (await connection.execute(_STORED, (workspace_id, credential_id))).fetchone()
    if row is None:
        return None
    found, kind, parameters, secret, revision = row
    return StoredCredential(
        id=found,
        workspace_id=workspace_id,
        kind=CredentialType(kind),
        parameters=msgspec.convert(parameters, Parameters),
        secret=secret,
        revision=revision,
    )


async def encrypted_secrets(connection: Connection) -> list[tuple[UUID, bytes]]:
    rows = await (await connection.execute(_SECRETS)).fetchall()
    return [(row[0], row[1]) for row in rows]


async def set_secret(connection: Connection, credential_id: UUID, secret: bytes) -> None:
    await connection.execute(_SET_SECRET, (secret, credential_id))


async def _exists(connection: Connection, query: str, values: tuple[object, ...]) -> bool:
    row = await (await connection.execute(query, values)).fetchone()
    return row is not None and row[0] is True


def _body(row: tuple[Any, ...]) -> CredentialBody:
    credential_id, name, kind, parameters, rotated_at, revision, user_id, user_name, email = row
    return CredentialBody(
        id=credential_id,
        name=name,
        kind=CredentialType(kind),
        **msgspec.structs.asdict(msgspec.convert(parameters, Parameters)),
        rotated_at=rotated_at,
        created_at=created_at(credential_id),
        created_by=ActorBody(user_id, user_name, email),
        revision=revision,
    )
