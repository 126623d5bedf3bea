"""SQL for session tokens."""

from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection
from quarterdeck.sessions.token_model import NewSessionToken, SessionTokenBody

_ADD = """
INSERT INTO session_tokens (id, session_id, api_key_id, secret_hash, prefix, label, may_resolve, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT t.id, t.session_id, t.prefix, t.label, t.may_resolve, t.api_key_id, t.expires_at, t.revoked_at,
       u.id, u.display_name, u.email
FROM session_tokens t JOIN api_keys k ON k.id = t.api_key_id JOIN users u ON u.id = k.created_by
WHERE t.session_id = %s AND t.id = %s
"""
# The session is part of the bounds and of the order so that only the index (session_id, id) fits: see
# api_keys/store.py.
_NEWEST_FIRST = """
SELECT t.id, t.session_id, t.prefix, t.label, t.may_resolve, t.api_key_id, t.expires_at, t.revoked_at,
       u.id, u.display_name, u.email
FROM session_tokens t JOIN api_keys k ON k.id = t.api_key_id JOIN users u ON u.id = k.created_by
WHERE (t.session_id, t.id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY t.session_id DESC, t.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT t.id, t.session_id, t.prefix, t.label, t.may_resolve, t.api_key_id, t.expires_at, t.revoked_at,
       u.id, u.display_name, u.email
FROM session_tokens t JOIN api_keys k ON k.id = t.api_key_id JOIN users u ON u.id = k.created_by
WHERE (t.session_id, t.id) BETWEEN (%s, %s) AND (%s, %s) ORDER BY t.session_id, t.id LIMIT %s
"""
_REVOKE = """
UPDATE session_tokens SET revoked_at = clock_timestamp() WHERE session_id = %s AND id = %s AND revoked_at IS NULL
"""


async def add(connection: Connection, token: NewSessionToken) -> None:
    await connection.execute(_ADD, msgspec.structs.astuple(token))


async def get(connection: Connection, session_id: UUID, token_id: UUID) -> SessionTokenBody | None:
    row = await (await connection.execute(_GET, (session_id, token_id))).fetchone()
    return None if row is None else _body(row)


async def page(
    connection: Connection, session_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[SessionTokenBody]:
    """`count` tokens from `start` on, inclusive."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (session_id, lowest, session_id, highest, count)
    rows = await (await connection.execute(query, values)).fetchall()
    return [_body(row) for row in rows]


async def revoke(connection: Connection, session_id: UUID, token_id: UUID) -> bool:
    """False if the token was revoked already."""
    return (await connection.execute(_REVOKE, (session_id, token_id))).rowcount == 1


def _body(row: tuple[Any, ...]) -> SessionTokenBody:
    token_id, session_id, prefix, label, may_resolve, api_key_id, expires_at, revoked_at, *actor = row
    return SessionTokenBody(
        id=token_id,
        session_id=session_id,
        prefix=prefix,
        label=label,
        may_resolve=may_resolve,
        api_key_id=api_key_id,
        created_by=ActorBody(*actor),
        created_at=created_at(token_id),
        expires_at=expires_at,
        revoked_at=revoked_at,
    )
