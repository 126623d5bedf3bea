"""The client that the conformance suite of MCP starts: `python -m tests.mcp.conformance_client URL`. It connects as a
run does, lists the tools and calls them."""

import asyncio
import os
import sys
from typing import Any
from uuid import uuid4

import msgspec

from tests.mcp.targets import LOCAL, PATIENT, connections, http_target

# Arguments by type, for scenarios that do not say how to call their tools.
_ARGUMENTS: dict[str, Any] = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


async def main(url: str) -> None:
    context = msgspec.json.decode(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    settings = msgspec.structs.replace(PATIENT, allowed_addresses=LOCAL)
    target, owner = http_target(url.replace("localhost", "127.0.0.1")), uuid4()
    async with connections(settings) as found:
        tools = await found.list_tools(target, owner)
        calls = context.get("toolCalls") or [
            {
                "name": tool.name,
                "arguments": {
                    name: _ARGUMENTS.get(schema.get("type", "string"), "text")
                    for name, schema in tool.parameters.get("properties", {}).items()
                },
            }
            for tool in tools
        ]
        for call in calls:
            result = await found.call(target, owner, call["name"], call.get("arguments") or {}, "key")
            sys.stderr.write(f"{call['name']}: {result.text}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
