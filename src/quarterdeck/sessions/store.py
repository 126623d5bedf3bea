"""Sessions and their tokens in the database."""

from datetime import datetime
from uuid import UUID

from quarterdeck.db.database import Connection

_ADD = "INSERT INTO sessions (id, workspace_id, title, created_by) VALUES (%s, %s, %s, %s)"
_WORKSPACE_OF = "SELECT workspace_id FROM sessions WHERE id = %s"
_ADD_TOKEN = """
INSERT INTO session_tokens (id, session_id, api_key_id, secret_hash, prefix, expires_at)
VALUES (%s, %s, %s, %s, %s, %s)
"""


async def add(connection: Connection, session_id: UUID, workspace_id: UUID, title: str | None, user_id: UUID) -> None:
    await connection.execute(_ADD, (session_id, workspace_id, title, user_id))


async def workspace_of(connection: Connection, session_id: UUID) -> UUID | None:
    row = await (await connection.execute(_WORKSPACE_OF, (session_id,))).fetchone()
    return None if row is None else row[0]


async def add_token(
    connection: Connection,
    token_id: UUID,
    session_id: UUID,
    api_key_id: UUID,
    secret_hash: bytes,
    prefix: str,
    expires_at: datetime,
) -> None:
    await connection.execute(_ADD_TOKEN, (token_id, session_id, api_key_id, secret_hash, prefix, expires_at))
