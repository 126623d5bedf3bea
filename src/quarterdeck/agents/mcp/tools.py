"""The tools of MCP servers as tools of a run."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from quarterdeck.agents.attachments import IMAGES
from quarterdeck.agents.mcp.definitions import server_name
from quarterdeck.agents.mcp.model import McpFailure, McpResult, PinnedTool, UnavailableServer
from quarterdeck.agents.model import ToolSpec
from quarterdeck.agents.tools import CallContext, Effect, NewImage, Output, Refusal, Tool
from quarterdeck.core.text_types import storable

# Server, tool as the server calls it, arguments, key. Raises McpFailure.
CallServer = Callable[[UUID, str, dict[str, Any], str], Awaitable[McpResult]]

_MAY_HAVE_TAKEN_EFFECT = "The call may have taken effect."


def mcp_tool(pinned: PinnedTool, call_server: CallServer) -> Tool:
    """Always external: that a tool only reads is the server's claim."""

    async def carry_out(arguments: dict[str, Any], context: CallContext) -> Output:
        try:
            result = await call_server(pinned.server_id, pinned.tool.name, arguments, context.key)
        except McpFailure as failure:
            if not failure.was_sent:
                raise Refusal(str(failure)) from failure
            return Output(f"Error: {failure} {_MAY_HAVE_TAKEN_EFFECT}")
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
    images = [image for image in result.images if image.media_type in IMAGES]
    left_out = [image.media_type for image in result.images if image.media_type not in IMAGES]
    notes = [f"[Left out: {storable(media_type)}, which is no image that models take.]" for media_type in left_out]
    text = "\n".join(filter(None, [storable(result.text), *notes]))
    if not text:
        text = f"{len(images)} image{'s' * (len(images) > 1)}." if images else "The tool returned nothing."
    return Output(
        f"Error: {text}" if result.is_error else text,
        images=tuple(NewImage(image.data, image.media_type) for image in images),
    )
