"""SQL of MCP servers and their known tools."""

from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.connections.mcp.model import McpTool, definition, definition_sha256
from quarterdeck.connections.servers.model import McpServerBody, NewMcpServer
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.ids import created_at
from quarterdeck.core.pages import bounds
from quarterdeck.db.database import Connection

_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(mcp_servers_lock(%s))"
_COUNT = "SELECT count(*) FROM mcp_servers WHERE workspace_id = %s"
_NAME_TAKEN = "SELECT EXISTS (SELECT FROM mcp_servers WHERE workspace_id = %s AND name = %s)"
_ADD = """
INSERT INTO mcp_servers (id, workspace_id, name, url, command, credential_id, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_GET = """
SELECT s.id, s.name, s.url, s.command, s.credential_id, s.checked_at, s.check_failure,
       (SELECT count(*) FROM mcp_tools t WHERE t.server_id = s.id), s.revision, u.id, u.display_name, u.email
FROM mcp_servers s JOIN users u ON u.id = s.created_by
WHERE s.workspace_id = %s AND s.id = %s
"""
_GET_ALL = """
SELECT s.id, s.name, s.url, s.command, s.credential_id, s.checked_at, s.check_failure,
       (SELECT count(*) FROM mcp_tools t WHERE t.server_id = s.id), s.revision, u.id, u.display_name, u.email
FROM mcp_servers s JOIN users u ON u.id = s.created_by
WHERE s.workspace_id = %s AND s.id = ANY(%s)
"""
# The workspace is part of the bounds and of the order, so that the planner can use only the matching index: as in
# api_keys/store.py.
_NEWEST_FIRST = """
SELECT s.id, s.name, s.url, s.command, s.credential_id, s.checked_at, s.check_failure,
       (SELECT count(*) FROM mcp_tools t WHERE t.server_id = s.id), s.revision, u.id, u.display_name, u.email
FROM mcp_servers s JOIN users u ON u.id = s.created_by
WHERE (s.workspace_id, s.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY s.workspace_id DESC, s.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT s.id, s.name, s.url, s.command, s.credential_id, s.checked_at, s.check_failure,
       (SELECT count(*) FROM mcp_tools t WHERE t.server_id = s.id), s.revision, u.id, u.display_name, u.email
FROM mcp_servers s JOIN users u ON u.id = s.created_by
WHERE (s.workspace_id, s.id) BETWEEN (%s, %s) AND (%s, %s)
ORDER BY s.workspace_id, s.id LIMIT %s
"""
_LOCK = "SELECT FROM mcp_servers WHERE workspace_id = %s AND id = %s FOR UPDATE"
_EXISTING = "SELECT id FROM mcp_servers WHERE workspace_id = %s AND id = ANY(%s)"
_CHANGE = """
UPDATE mcp_servers SET name = %s, url = %s, command = %s, credential_id = %s, revision = revision + 1
WHERE workspace_id = %s AND id = %s
"""
_DELETE = "DELETE FROM mcp_servers WHERE workspace_id = %s AND id = %s"
# Not a change of the server: its revision stays, and so do its open connections.
_NOTE_CHECK = """
UPDATE mcp_servers SET checked_at = clock_timestamp(), check_failure = %s WHERE workspace_id = %s AND id = %s
"""
_TOOLS = """
SELECT t.definition FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id
WHERE s.workspace_id = %s AND s.id = %s ORDER BY t.name
"""
_HASHES = """
SELECT t.name, t.definition_sha256 FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id
WHERE s.workspace_id = %s AND s.id = %s
"""
_FORGET_TOOLS = """
DELETE FROM mcp_tools t USING mcp_servers s WHERE s.id = t.server_id AND s.workspace_id = %s AND s.id = %s
"""
_ADD_TOOLS = """
INSERT INTO mcp_tools (server_id, name, definition, definition_sha256)
SELECT s.id, t.name, t.definition, t.sha256
FROM mcp_servers s, unnest(%s::text[], %s::jsonb[], %s::bytea[]) AS t (name, definition, sha256)
WHERE s.workspace_id = %s AND s.id = %s
ON CONFLICT DO NOTHING
"""


async def lock_workspace(connection: Connection, workspace_id: UUID) -> None:
    """For the number of servers and for their names."""
    await connection.execute(_LOCK_WORKSPACE, (workspace_id,))


async def count(connection: Connection, workspace_id: UUID) -> int:
    row = await (await connection.execute(_COUNT, (workspace_id,))).fetchone()
    assert row is not None
    found: int = row[0]
    return found


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    row = await (await connection.execute(_NAME_TAKEN, (workspace_id, name))).fetchone()
    return row is not None and row[0] is True


async def add(connection: Connection, server: NewMcpServer) -> None:
    await connection.execute(
        _ADD,
        (
            server.id,
            server.workspace_id,
            server.name,
            server.url,
            server.command,
            server.credential_id,
            server.created_by,
        ),
    )


async def get(connection: Connection, workspace_id: UUID, server_id: UUID) -> McpServerBody | None:
    row = await (await connection.execute(_GET, (workspace_id, server_id))).fetchone()
    return None if row is None else _body(row)


async def get_all(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> dict[UUID, McpServerBody]:
    """Those that exist, by id."""
    rows = await (await connection.execute(_GET_ALL, (workspace_id, ids))).fetchall()
    return {row[0]: _body(row) for row in rows}


async def page(
    connection: Connection, workspace_id: UUID, start: UUID, count: int, *, newest_first: bool
) -> list[McpServerBody]:
    """`count` servers from `start`, inclusive."""
    query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    lowest, highest = bounds(start, newest_first=newest_first)
    values = (workspace_id, lowest, workspace_id, highest, count)
    return [_body(row) for row in await (await connection.execute(query, values)).fetchall()]


async def lock(connection: Connection, workspace_id: UUID, server_id: UUID) -> bool:
    """Whether the server exists. A separate statement, so that the next read sees what the previous holder of the lock
    committed."""
    return (await connection.execute(_LOCK, (workspace_id, server_id))).rowcount == 1


async def existing(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> set[UUID]:
    rows = await (await connection.execute(_EXISTING, (workspace_id, ids))).fetchall()
    return {row[0] for row in rows}


async def change(connection: Connection, workspace_id: UUID, server: McpServerBody) -> None:
    values = (server.name, server.url, server.command, server.credential_id)
    await connection.execute(_CHANGE, (*values, workspace_id, server.id))


async def delete(connection: Connection, workspace_id: UUID, server_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, server_id))


async def note_check(connection: Connection, workspace_id: UUID, server_id: UUID, failure: str | None) -> None:
    await connection.execute(_NOTE_CHECK, (failure, workspace_id, server_id))


async def tools(connection: Connection, workspace_id: UUID, server_id: UUID) -> list[McpTool]:
    rows = await (await connection.execute(_TOOLS, (workspace_id, server_id))).fetchall()
    return [msgspec.convert(row[0], McpTool) for row in rows]


async def hashes(connection: Connection, workspace_id: UUID, server_id: UUID) -> dict[str, bytes]:
    """Of the known definitions, by name."""
    rows = await (await connection.execute(_HASHES, (workspace_id, server_id))).fetchall()
    return {name: bytes(sha256) for name, sha256 in rows}


async def forget_tools(connection: Connection, workspace_id: UUID, server_id: UUID) -> None:
    await connection.execute(_FORGET_TOOLS, (workspace_id, server_id))


async def add_tools(connection: Connection, workspace_id: UUID, server_id: UUID, added: list[McpTool]) -> None:
    """A tool that is known keeps its definition."""
    names = [tool.name for tool in added]
    definitions = [Jsonb(definition(tool)) for tool in added]
    sha256s = [definition_sha256(tool) for tool in added]
    await connection.execute(_ADD_TOOLS, (names, definitions, sha256s, workspace_id, server_id))


def _body(row: tuple[Any, ...]) -> McpServerBody:
    server_id, name, url, command, credential_id, checked_at, failure, tool_count, revision, *user = row
    return McpServerBody(
        id=server_id,
        name=name,
        url=url,
        command=command,
        credential_id=credential_id,
        checked_at=checked_at,
        check_failure=failure,
        tool_count=tool_count,
        created_at=created_at(server_id),
        created_by=ActorBody(*user),
        revision=revision,
    )
