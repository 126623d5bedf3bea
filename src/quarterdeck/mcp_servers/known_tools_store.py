"""SQL for the known definitions of tools."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.agents.mcp.definitions import definition, definition_sha256
from quarterdeck.agents.mcp.model import McpTool
from quarterdeck.db.database import Connection

# FOR KEY SHARE: a server that is being deleted is waited for, and then has no row here. Sorted, so that two runs do not
# wait for each other.
_ADD = """
WITH server AS (SELECT id FROM mcp_servers WHERE id = %s FOR KEY SHARE)
INSERT INTO mcp_tools (server_id, name, definition, definition_sha256)
SELECT server.id, new.name, new.definition, new.sha256
FROM server CROSS JOIN unnest(%s::text[], %s::jsonb[], %s::bytea[]) AS new (name, definition, sha256)
WHERE NOT EXISTS (SELECT FROM mcp_tools t WHERE t.server_id = server.id AND t.name = new.name)
ORDER BY new.name
LIMIT (SELECT greatest(%s - count(*), 0) FROM mcp_tools t WHERE t.server_id = %s)
ON CONFLICT DO NOTHING
"""
_KNOWN = "SELECT name, definition_sha256 FROM mcp_tools WHERE server_id = %s"


async def add(connection: Connection, server_id: UUID, tools: Sequence[McpTool], max_known: int) -> None:
    """Adds those whose names are not known, as many as fit."""
    columns = (
        [tool.name for tool in tools],
        [Jsonb(definition(tool)) for tool in tools],
        [definition_sha256(tool) for tool in tools],
    )
    await connection.execute(_ADD, (server_id, *columns, max_known, server_id))


async def known(connection: Connection, server_id: UUID) -> dict[str, bytes]:
    """The hashes, by the server's names for the tools."""
    return dict(await (await connection.execute(_KNOWN, (server_id,))).fetchall())
