"""Open connections to MCP servers. A connection belongs to one session and is kept warm between its runs."""

from typing import Any
from uuid import UUID

from quarterdeck.agents.mcp.model import McpResult, McpTarget, McpTool
from quarterdeck.agents.sandbox.model import Sandbox
from quarterdeck.core.settings import McpSettings


class McpConnections:
    """One for a process. Connections are never shared between owners; an owner is a session, or one check."""

    def __init__(self, settings: McpSettings, sandbox: Sandbox | None) -> None:
        self._settings = settings
        self._sandbox = sandbox

    async def list_tools(self, target: McpTarget, owner: UUID) -> list[McpTool]:
        """The tools as the server lists them now, bounded and cleaned. Raises McpFailure."""
        raise NotImplementedError

    async def call(self, target: McpTarget, owner: UUID, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        """Call the tool by the server's name for it. Raises McpFailure. Cancelling the caller cancels the call at the
        server."""
        raise NotImplementedError

    async def close_owner(self, owner: UUID) -> None:
        """Close the connections of one owner, as after a check."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all connections and end all their processes."""
        raise NotImplementedError
