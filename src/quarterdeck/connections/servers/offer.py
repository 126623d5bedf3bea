"""Which servers workspaces may add: URLs by the address policy, commands by the file of the operator."""

from quarterdeck.connections.mcp.commands import read_commands
from quarterdeck.core import errors
from quarterdeck.core.agent_settings import McpSettings
from quarterdeck.outbound.rules import AddressPolicy
from quarterdeck.outbound.urls import read_url


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
