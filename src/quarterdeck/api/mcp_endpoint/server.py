"""The tools as a server of the official MCP SDK. Importing the SDK takes a second and tens of megabytes, so this module
is imported by the first request to /mcp."""

import asyncio
from importlib.metadata import version
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from quarterdeck.api.mcp_endpoint.own_api import OwnApi, OwnApiError
from quarterdeck.api.mcp_endpoint.tools import TOOLS, Context, WaitLimits

_INSTRUCTIONS = (
    "A workspace of Quarterdeck, a service that runs agents. send_input sends a message to a session and returns the "
    "answer of the agent, or the actions that the run waits for."
)
_LISTED = types.ListToolsResult(
    tools=[
        types.Tool(
            name=name,
            description=tool.description,
            input_schema=tool.schema,
            annotations=types.ToolAnnotations(read_only_hint=tool.only_reads, open_world_hint=False),
        )
        for name, tool in TOOLS.items()
    ]
)


async def serve(
    api: OwnApi,
    max_wait_seconds: float,
    stopping: asyncio.Event,
    max_body_bytes: int,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """One HTTP request. Nothing is kept between requests: its tasks end with it, also when the client leaves."""

    async def list_tools(_: ServerRequestContext[Any], __: object) -> types.ListToolsResult:
        return _LISTED

    async def call_tool(
        request: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async def report(seconds: float) -> None:
            await request.session.report_progress(seconds, None, "The run has not ended yet.")

        return await _call(
            Context(api, WaitLimits(max_wait_seconds, stopping, report)), params.name, params.arguments or {}
        )

    server = Server(
        "quarterdeck",
        version=version("quarterdeck"),
        title="Quarterdeck",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=max_body_bytes)
    async with manager.run():
        await manager.handle_request(scope, receive, send)


async def _call(context: Context, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    tool = TOOLS.get(name)
    if tool is None:
        return _failed(f"There is no tool {name!r}.")
    try:
        result = await tool.carry_out(context, msgspec.convert(arguments, tool.arguments))
    except msgspec.ValidationError as fault:
        return _failed(f"Invalid arguments: {fault}")
    except OwnApiError as refused:
        return _failed(str(refused))
    return types.CallToolResult(content=[types.TextContent(text=msgspec.json.encode(result).decode())])


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
