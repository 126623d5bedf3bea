"""SQL of credentials. Secrets are encrypted before they get here."""

from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.connections.credentials.model import CredentialBody, StoredCredential
from quarterdeck.db.database import Connection
from quarterdeck.db.records import Records, fetch_bool, fetch_int, fetch_record

_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(stored_credentials_lock(%s))"
_COUNT = "SELECT count(*) FROM credentials WHERE workspace_id = %s"
_NAME_TAKEN = "SELECT EXISTS (SELECT FROM credentials WHERE workspace_id = %s AND name = %s)"
_ADD = """
INSERT INTO credentials (id, workspace_id, name, kind, parameters, secret, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_CREDENTIALS = Records(
    CredentialBody,
    table="credentials",
    columns="""r.id, r.name, r.kind, r.rotated_at, r.revision, actor(u) AS created_by,
        r.parameters->>'header' AS header, r.parameters->>'token_url' AS token_url,
        r.parameters->>'client_id' AS client_id, r.parameters->>'scope' AS scope,
        r.parameters->>'audience' AS audience""",
    joins="JOIN users u ON u.id = r.created_by",
)
get, page = _CREDENTIALS.get, _CREDENTIALS.page
_LOCK = "SELECT FROM credentials WHERE workspace_id = %s AND id = %s FOR UPDATE"
# Until the end of the transaction it cannot be deleted.
_HOLD = "SELECT FROM credentials WHERE workspace_id = %s AND id = %s FOR KEY SHARE"
_ROTATE = """
UPDATE credentials SET secret = %s, rotated_at = clock_timestamp(), revision = revision + 1
WHERE workspace_id = %s AND id = %s
"""
_IS_USED = "SELECT EXISTS (SELECT FROM mcp_servers WHERE workspace_id = %s AND credential_id = %s)"
_DELETE = "DELETE FROM credentials WHERE workspace_id = %s AND id = %s"
_STORED = """
SELECT id, workspace_id, kind, parameters, secret, revision FROM credentials WHERE workspace_id = %s AND id = %s
"""
_SECRETS = "SELECT id, secret FROM credentials ORDER BY id FOR UPDATE"
_SET_SECRET = "UPDATE credentials SET secret = %s WHERE id = %s"


async def lock_workspace(connection: Connection, workspace_id: UUID) -> None:
    await connection.execute(_LOCK_WORKSPACE, (workspace_id,))


async def count(connection: Connection, workspace_id: UUID) -> int:
    return await fetch_int(connection, _COUNT, (workspace_id,))


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    return await fetch_bool(connection, _NAME_TAKEN, (workspace_id, name))


async def add(
    connection: Connection, workspace_id: UUID, created_by: UUID, name: str, credential: StoredCredential
) -> None:
    parameters = Jsonb(msgspec.to_builtins(credential.parameters))
    values = (credential.id, workspace_id, name, credential.kind, parameters, credential.secret, created_by)
    await connection.execute(_ADD, values)


async def lock(connection: Connection, workspace_id: UUID, credential_id: UUID) -> None:
    """A separate statement, so that the next read sees what the previous holder of the lock committed."""
    await connection.execute(_LOCK, (workspace_id, credential_id))


async def hold(connection: Connection, workspace_id: UUID, credential_id: UUID) -> bool:
    """Whether it exists. It is not deleted before the end of the transaction."""
    return (await connection.execute(_HOLD, (workspace_id, credential_id))).rowcount == 1


async def rotate(connection: Connection, workspace_id: UUID, credential_id: UUID, secret: bytes) -> None:
    await connection.execute(_ROTATE, (secret, workspace_id, credential_id))


async def is_used(connection: Connection, workspace_id: UUID, credential_id: UUID) -> bool:
    return await fetch_bool(connection, _IS_USED, (workspace_id, credential_id))


async def delete(connection: Connection, workspace_id: UUID, credential_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, credential_id))


async def stored(connection: Connection, workspace_id: UUID, credential_id: UUID) -> StoredCredential | None:
    return await fetch_record(connection, StoredCredential, _STORED, (workspace_id, credential_id))


async def encrypted_secrets(connection: Connection) -> list[tuple[UUID, bytes]]:
    return await (await connection.execute(_SECRETS)).fetchall()


async def set_secret(connection: Connection, credential_id: UUID, secret: bytes) -> None:
    await connection.execute(_SET_SECRET, (secret, credential_id))
