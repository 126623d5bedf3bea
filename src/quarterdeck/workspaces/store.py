"""Users, workspaces and members."""

from uuid import UUID

from quarterdeck.db.database import Connection

_ADD_USER = """
INSERT INTO users (id, email) VALUES (%s, %s)
ON CONFLICT (lower(email)) DO UPDATE SET email = users.email
RETURNING id
"""
_ADD_WORKSPACE = "INSERT INTO workspaces (id, name, owner_id) VALUES (%s, %s, %s)"
# Not FOR UPDATE, which a key being made in the workspace would wait for while we wait for the key that makes it.
_OWNER = "SELECT owner_id FROM workspaces WHERE id = %s FOR NO KEY UPDATE"
# Two servers that start at once on an empty database make one workspace.
_LOCK_FIRST_START = "LOCK TABLE workspaces IN SHARE ROW EXCLUSIVE MODE"
_ANY_WORKSPACE = "SELECT EXISTS (SELECT FROM workspaces)"
_ADD_MEMBER = """
INSERT INTO members (workspace_id, user_id) VALUES (%s, %s)
ON CONFLICT (workspace_id, user_id) DO UPDATE SET ended_at = NULL
"""
_END_MEMBER = """
UPDATE members SET ended_at = clock_timestamp() WHERE workspace_id = %s AND user_id = %s AND ended_at IS NULL
"""
_MEMBER = """
SELECT m.user_id, m.ended_at IS NULL
FROM members m JOIN users u ON u.id = m.user_id
WHERE m.workspace_id = %s AND lower(u.email) = lower(%s)
"""


async def add_user(connection: Connection, user_id: UUID, email: str) -> UUID:
    """The id of the user with this address, who may have been there before."""
    row = await (await connection.execute(_ADD_USER, (user_id, email))).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


async def add_workspace(connection: Connection, workspace_id: UUID, name: str, owner_id: UUID) -> None:
    await connection.execute(_ADD_WORKSPACE, (workspace_id, name, owner_id))


async def lock_workspace(connection: Connection, workspace_id: UUID) -> UUID | None:
    """Its owner, with the row locked: changes to members and their keys come one after the other."""
    row = await (await connection.execute(_OWNER, (workspace_id,))).fetchone()
    return None if row is None else row[0]


async def lock_first_start(connection: Connection) -> None:
    await connection.execute(_LOCK_FIRST_START)


async def any_workspace(connection: Connection) -> bool:
    row = await (await connection.execute(_ANY_WORKSPACE)).fetchone()
    assert row is not None
    return bool(row[0])


async def add_member(connection: Connection, workspace_id: UUID, user_id: UUID) -> None:
    await connection.execute(_ADD_MEMBER, (workspace_id, user_id))


async def end_member(connection: Connection, workspace_id: UUID, user_id: UUID) -> None:
    await connection.execute(_END_MEMBER, (workspace_id, user_id))


async def find_member(connection: Connection, workspace_id: UUID, email: str) -> tuple[UUID, bool] | None:
    """The user, and whether the membership still lasts."""
    row = await (await connection.execute(_MEMBER, (workspace_id, email))).fetchone()
    return None if row is None else (row[0], row[1])
