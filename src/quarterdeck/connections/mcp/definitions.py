"""The definitions of tools of MCP servers: the names that models use, and their comparison with known definitions."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from quarterdeck.connections.mcp.model import SEPARATOR, McpTool, PinnedTool, definition_sha256, full_name


def server_name(name: str) -> str:
    """Of a full name: the names of servers have no separator."""
    return name.partition(SEPARATOR)[0]


def pin(server_id: UUID, name: str, tools: Iterable[McpTool], known: Mapping[str, bytes]) -> list[PinnedTool]:
    """`known`: the hashes of the known definitions, by the server's names for the tools. Those of new tools are known,
    too, unless the server has too many."""
    pinned = []
    for tool in tools:
        sha256 = definition_sha256(tool)
        pinned.append(
            PinnedTool(
                server_id=server_id,
                full_name=full_name(name, tool.name),
                tool=tool,
                definition_sha256=sha256.hex(),
                is_changed=known.get(tool.name) != sha256,
            )
        )
    return pinned
