"""Sessions and their tokens in the database."""

from datetime import datetime
from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.sessions.model import AgentSetup, SessionBody

_ADD = """
INSERT INTO sessions (id, workspace_id, title, model, instructions, created_by) VALUES (%s, %s, %s, %s, %s, %s)
"""
_ADD_SKILL = "INSERT INTO session_skills (session_id, position, skill_id, version) VALUES (%s, %s, %s, %s)"
_AGENT_SETUP = "SELECT model, instructions FROM sessions WHERE id = %s"
_WORKSPACE_OF = "SELECT workspace_id FROM sessions WHERE id = %s"
_ADD_TOKEN = """
INSERT INTO session_tokens (id, session_id, api_key_id, secret_hash, prefix, expires_at)
VALUES (%s, %s, %s, %s, %s, %s)
"""


async def add(connection: Connection, session: SessionBody, user_id: UUID) -> None:
    await connection.execute(
        _ADD, (session.id, session.workspace_id, session.title, session.model, session.instructions, user_id)
    )
    if session.skills:
        rows = [(session.id, position, one.skill_id, one.version) for position, one in enumerate(session.skills)]
        await connection.cursor().executemany(_ADD_SKILL, rows)


async def agent_setup(connection: Connection, session_id: UUID) -> AgentSetup:
    row = await (await connection.execute(_AGENT_SETUP, (session_id,))).fetchone()
    assert row is not None
    return AgentSetup(*row)


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
