"""The tools of MCP servers as tools of a run."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from quarterdeck.connections.mcp.model import McpFailure, McpResult, PinnedTool, UnavailableServer, server_name
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, NewImage, Output, Tool, failed_output

# Server, tool as the server calls it, arguments, key. Raises McpFailure.
CallServer = Callable[[UUID, str, dict[str, Any], str], Awaitable[McpResult]]


def mcp_tool(pinned: PinnedTool, call_server: CallServer) -> Tool:
    """Always external: that a tool only reads is the server's claim."""

    async def carry_out(arguments: dict[str, Any], context: CallContext) -> Output:
        try:
            result = await call_server(pinned.server_id, pinned.tool.name, arguments, context.key)
        except McpFailure as failure:
            # Not an unknown outcome, about which a person would be asked: the model knows what was going on.
            return failed_output(failure)
        return _output(result)

    return Tool(
        spec=ToolSpec(pinned.full_name, pinned.tool.description, pinned.tool.parameters),
        effect=Effect.EXTERNAL,
        carry_out=carry_out,
        definition_sha256=pinned.definition_sha256,
        is_changed=pinned.is_changed,
        origin=_origin(pinned),
    )


def unavailable_instructions(servers: list[UnavailableServer]) -> str:
    """Without the reasons: they may quote the server."""
    return "\n".join(f"The tools of the MCP server {server.label} are not available." for server in servers)


def _origin(pinned: PinnedTool) -> str:
    claims = ["the server says that it only reads"] if pinned.tool.read_only else []
    claims += ["its definition has changed since it was first seen or last checked"] if pinned.is_changed else []
    note = f" ({'; '.join(claims)})" if claims else ""
    return f"of the MCP server {server_name(pinned.full_name)}{note}"


def _output(result: McpResult) -> Output:
    count = len(result.images)
    text = result.text or (f"{count} image{'s' * (count > 1)}." if count else "The tool returned nothing.")
    output = failed_output(text) if result.is_error else Output(text)
    return replace(output, images=tuple(NewImage(image.data, image.media_type) for image in result.images))
