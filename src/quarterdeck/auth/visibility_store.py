"""SQL for the visibility of sessions."""

from uuid import UUID

from quarterdeck.db.database import Connection

_WORKSPACE_OF = "SELECT workspace_id FROM sessions WHERE id = %s"


async def workspace_of(connection: Connection, session_id: UUID) -> UUID | None:
    row = await (await connection.execute(_WORKSPACE_OF, (session_id,))).fetchone()
    return None if row is None else row[0]
