"""The definitions of tools of MCP servers: the names that models use, and their comparison with known definitions."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.agents.mcp.model import SEPARATOR, McpTool, PinnedTool


def full_name(server_name: str, tool_name: str) -> str:
    """As models call it, and as policies name it."""
    return f"{server_name}{SEPARATOR}{model_name(tool_name)}"


def model_name(tool_name: str) -> str:
    """The names of models' tools have no dots."""
    return tool_name.replace(".", "_")


def server_name(name: str) -> str:
    """Of a full name: the names of servers have no separator."""
    return name.partition(SEPARATOR)[0]


def definition(tool: McpTool) -> dict[str, Any]:
    """As it is stored and compared: everything that the model and people are told about the tool."""
    built: dict[str, Any] = msgspec.to_builtins(tool)
    return built


def definition_sha256(tool: McpTool) -> bytes:
    # Sorted: a server may list the keys of a schema in another order each time.
    return hashlib.sha256(msgspec.json.encode(definition(tool), order="deterministic")).digest()


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
