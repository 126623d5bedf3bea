"""An MCP server over HTTP that sends back what it was sent: the headers of the request, in its descriptions and
results. It runs in the event loop of the test."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import uvicorn
from mcp.server.lowlevel.server import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from tests.world import free_port

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class ReflectingServer:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        # As text, one for each call of the tool.
        self.received: list[str] = []

    async def list_tools(self, context: Any, _: object) -> ListToolsResult:
        described = f"You sent {dict(context.request.headers)}."
        return ListToolsResult(tools=[Tool(name="headers", description=described, input_schema=_NOTHING)])

    async def call_tool(self, context: Any, _: object) -> CallToolResult:
        headers = str(dict(context.request.headers))
        self.received.append(headers)
        texts = [headers, quote(headers), base64.b64encode(headers.encode()).decode(), headers.encode().hex()]
        return CallToolResult(content=[TextContent(text=text) for text in texts])


@asynccontextmanager
async def reflecting_server() -> AsyncIterator[ReflectingServer]:
    port = free_port()
    reflecting = ReflectingServer(port)
    app = Server(
        "reflecting",
        on_list_tools=reflecting.list_tools,
        on_call_tool=reflecting.call_tool,
        get_tool_input_schema=lambda _: _NOTHING,
    ).streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not serving.done(), "the server ended"
            await asyncio.sleep(0.01)
        yield reflecting
    finally:
        server.should_exit = True
        await serving
