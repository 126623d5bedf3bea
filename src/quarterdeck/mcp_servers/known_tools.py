"""The definitions of tools that are known, in the transactions of others: a run lists the tools of its servers."""

from collections.abc import Sequence
from uuid import UUID

from quarterdeck.agents.mcp.definitions import pin
from quarterdeck.agents.mcp.model import McpTool, PinnedTool
from quarterdeck.db.database import Connection
from quarterdeck.mcp_servers import known_tools_store as store


async def pin_tools(
    connection: Connection, server_id: UUID, name: str, tools: Sequence[McpTool], max_known: int
) -> list[PinnedTool]:
    """Adds definitions of new tools to the known ones. A server has at most `max_known` of them, so that one with other
    names each time does not fill the table: further tools count as changed."""
    await store.add(connection, server_id, tools, max_known)
    # A statement of its own: another run may have added a definition of the same tool.
    return pin(server_id, name, tools, await store.known(connection, server_id))
