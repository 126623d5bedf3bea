"""The client that the conformance suite of MCP starts: `python -m tests.mcp.conformance_client URL`. It connects as a
run does, lists the tools and calls them."""

import asyncio
import os
import sys
from typing import Any
from uuid import uuid4

import msgspec

from quarterdeck.connections.mcp.model import McpTool
from tests.mcp.targets import PATIENT, connections, http_target

# Arguments by type, for scenarios that do not say how to call their tools.
_ARGUMENTS: dict[str, Any] = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


async def main(url: str) -> None:
    target, owner = http_target(url.replace("localhost", "127.0.0.1")), uuid4()
    async with connections(PATIENT) as found:
        tools = await found.list_tools(target, owner)
        for call in _named_calls() or [_call_of(tool, tools) for tool in tools]:
            await found.call(target, owner, call["name"], call["arguments"], "key")


def _named_calls() -> list[dict[str, Any]]:
    """What the scenario asks for, if it does."""
    calls: list[dict[str, Any]] = msgspec.json.decode(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get(
        "toolCalls", []
    )
    return calls


def _call_of(tool: McpTool, tools: list[McpTool]) -> dict[str, Any]:
    if tool.name == "json_schema_echo":
        # It compares the schema of the first tool with what the client made of it.
        return {"name": tool.name, "arguments": {"schema": tools[0].parameters}}
    properties = tool.parameters.get("properties", {})
    arguments = {name: _ARGUMENTS.get(schema.get("type"), "text") for name, schema in properties.items()}
    return {"name": tool.name, "arguments": arguments}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
