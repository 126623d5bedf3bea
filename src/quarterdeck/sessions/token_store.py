"""SQL for session tokens."""

from uuid import UUID

import msgspec

from quarterdeck.db.database import Connection
from quarterdeck.db.records import Records
from quarterdeck.sessions.token_model import NewSessionToken, SessionTokenBody

_ADD = """
INSERT INTO session_tokens (id, session_id, api_key_id, secret_hash, prefix, label, may_resolve, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_TOKENS = Records(
    SessionTokenBody,
    table="session_tokens",
    scope="session_id",
    columns="""r.id, r.session_id, r.prefix, r.label, r.may_resolve, r.api_key_id, r.expires_at, r.revoked_at,
        actor(u) AS created_by""",
    joins="JOIN api_keys k ON k.id = r.api_key_id JOIN users u ON u.id = k.created_by",
)
get, page = _TOKENS.get, _TOKENS.page
_REVOKE = """
UPDATE session_tokens SET revoked_at = clock_timestamp() WHERE session_id = %s AND id = %s AND revoked_at IS NULL
"""


async def add(connection: Connection, token: NewSessionToken) -> None:
    await connection.execute(_ADD, msgspec.structs.astuple(token))


async def revoke(connection: Connection, session_id: UUID, token_id: UUID) -> bool:
    """False if the token was revoked already."""
    return (await connection.execute(_REVOKE, (session_id, token_id))).rowcount == 1
