"""SQL for the tools of MCP servers that a run has."""

from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from quarterdeck.connections.mcp.model import PinnedTools
from quarterdeck.db.database import Connection

_GET = "SELECT mcp_tools FROM runs WHERE id = %s"
# Not progress, as in calls_store.py: a server that ends its worker each time must not reset barren_attempts.
_SET = """
UPDATE runs SET mcp_tools = %s, updated_at = clock_timestamp() WHERE id = %s AND attempt = %s AND state = 'running'
"""


async def get(connection: Connection, run_id: UUID) -> PinnedTools | None:
    row = await (await connection.execute(_GET, (run_id,))).fetchone()
    return None if row is None else msgspec.convert(row[0], PinnedTools | None)


async def set_tools(connection: Connection, run_id: UUID, attempt: int, tools: PinnedTools) -> bool:
    """False if this attempt has lost the run."""
    values = (Jsonb(msgspec.to_builtins(tools)), run_id, attempt)
    return (await connection.execute(_SET, values)).rowcount == 1
