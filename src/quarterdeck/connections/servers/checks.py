"""Lists the tools of servers, in an API process. A check has a connection of its own, which ends with it."""

from uuid import UUID

from quarterdeck.connections.mcp.connections import McpConnections
from quarterdeck.connections.mcp.model import McpFailure, McpTarget, McpTool, read_commands
from quarterdeck.core import errors
from quarterdeck.core.ids import new_id
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.outbound.rules import AddressPolicy, read_url
from quarterdeck.sandbox.adapter import Sandbox


class McpChecks:
    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._slots = Slots(settings.connections, settings.checks_per_workspace)
        self._connections: McpConnections | None = None

    def open(self, sandbox: Sandbox | None) -> None:
        """When the process starts, before it serves requests."""
        self._connections = McpConnections(self._settings, sandbox)

    async def list_tools(self, workspace_id: UUID, target: McpTarget) -> list[McpTool]:
        """Raises McpFailure."""
        assert self._connections is not None, "opened when the process starts"
        owner = new_id()
        async with hold_slot(self._slots, workspace_id, self._settings.connect_seconds, "checks of MCP servers"):
            try:
                return await self._connections.list_tools(target, owner)
            except McpFailure:
                raise
            except Exception as fault:
                # Whatever a server sends, the caller gets an answer.
                log.warning(
                    "the check of an MCP server failed", exc_info=fault, extra=fields(server_id=target.server_id)
                )
                raise McpFailure("The tools of the server cannot be listed.") from fault
            finally:
                await self._connections.close_owner(owner)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()


# Which servers workspaces may add: URLs by the address policy, commands by the file of the operator.


class McpOffer:
    def __init__(self, settings: McpSettings) -> None:
        """Raises CommandsError if the file of the operator is unusable."""
        self._policy = AddressPolicy(exceptions=settings.allowed_addresses)
        self._commands = sorted(read_commands(settings.commands_file))

    def check(self, url: str | None, command: str | None) -> None:
        if url is not None:
            read_url(url, self._policy)
        if command is not None and command not in self._commands:
            known = f"Use one of: {', '.join(self._commands)}." if self._commands else "This server has none."
            raise errors.invalid(f"command must be the name of a command that the operator configured. {known}")
