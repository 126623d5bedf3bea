"""Names and hashes of the tools of MCP servers."""

import hashlib

import msgspec

from quarterdeck.agents.mcp.model import SEPARATOR, McpTool


def full_name(server: str, tool: str) -> str:
    """As the model calls the tool. Model providers accept no dots in names."""
    return f"{server}{SEPARATOR}{tool.replace('.', '_')}"


def definition_sha256(tool: McpTool) -> bytes:
    """Over everything that the model or a person is told about the tool, as JSON with sorted keys."""
    definition = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "annotations": {"read_only": tool.read_only},
    }
    return hashlib.sha256(msgspec.json.encode(definition, order="sorted")).digest()
