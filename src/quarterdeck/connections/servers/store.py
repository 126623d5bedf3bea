"""SQL of MCP servers and their known tools."""

from uuid import UUID

import msgspec
from msgspec.structs import astuple
from psycopg.types.json import Jsonb

from quarterdeck.connections.mcp.model import McpTool, definition_sha256
from quarterdeck.connections.servers.model import CreateMcpServerBody, McpServerBody
from quarterdeck.db.database import Connection
from quarterdeck.db.records import Records, fetch_bool, fetch_column, fetch_int

_LOCK_WORKSPACE = "SELECT pg_advisory_xact_lock(mcp_servers_lock(%s))"
_COUNT = "SELECT count(*) FROM mcp_servers WHERE workspace_id = %s"
_NAME_TAKEN = "SELECT EXISTS (SELECT FROM mcp_servers WHERE workspace_id = %s AND name = %s)"
_ADD = """
INSERT INTO mcp_servers (workspace_id, id, name, url, command, credential_id, created_by)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_SERVERS = Records(
    McpServerBody,
    table="mcp_servers",
    columns="""r.id, r.name, r.url, r.command, r.credential_id, r.checked_at, r.check_failure, r.revision,
        (SELECT count(*) FROM mcp_tools t WHERE t.server_id = r.id) AS tool_count, actor(u) AS created_by""",
    joins="JOIN users u ON u.id = r.created_by",
)
get, page = _SERVERS.get, _SERVERS.page
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
    return await fetch_int(connection, _COUNT, (workspace_id,))


async def is_name_taken(connection: Connection, workspace_id: UUID, name: str) -> bool:
    return await fetch_bool(connection, _NAME_TAKEN, (workspace_id, name))


async def add(
    connection: Connection, workspace_id: UUID, server_id: UUID, body: CreateMcpServerBody, created_by: UUID
) -> None:
    await connection.execute(_ADD, (workspace_id, server_id, *astuple(body), created_by))


async def lock(connection: Connection, workspace_id: UUID, server_id: UUID) -> bool:
    """Whether the server exists. A separate statement, so that the next read sees what the previous holder of the lock
    committed."""
    return (await connection.execute(_LOCK, (workspace_id, server_id))).rowcount == 1


async def existing(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> set[UUID]:
    return set(await fetch_column(connection, _EXISTING, (workspace_id, ids)))


async def change(connection: Connection, workspace_id: UUID, server: McpServerBody) -> None:
    values = (server.name, server.url, server.command, server.credential_id)
    await connection.execute(_CHANGE, (*values, workspace_id, server.id))


async def delete(connection: Connection, workspace_id: UUID, server_id: UUID) -> None:
    await connection.execute(_DELETE, (workspace_id, server_id))


async def note_check(connection: Connection, workspace_id: UUID, server_id: UUID, failure: str | None) -> None:
    await connection.execute(_NOTE_CHECK, (failure, workspace_id, server_id))


async def tools(connection: Connection, workspace_id: UUID, server_id: UUID) -> list[McpTool]:
    found = await fetch_column(connection, _TOOLS, (workspace_id, server_id))
    return msgspec.convert(found, list[McpTool])


async def hashes(connection: Connection, workspace_id: UUID, server_id: UUID) -> dict[str, bytes]:
    """Of the known definitions, by name."""
    return dict(await (await connection.execute(_HASHES, (workspace_id, server_id))).fetchall())


async def forget_tools(connection: Connection, workspace_id: UUID, server_id: UUID) -> None:
    await connection.execute(_FORGET_TOOLS, (workspace_id, server_id))


async def add_tools(connection: Connection, workspace_id: UUID, server_id: UUID, added: list[McpTool]) -> None:
    """A tool that is known keeps its definition."""
    names = [tool.name for tool in added]
    definitions = [Jsonb(msgspec.to_builtins(tool)) for tool in added]
    sha256s = [definition_sha256(tool) for tool in added]
    await connection.execute(_ADD_TOOLS, (names, definitions, sha256s, workspace_id, server_id))
