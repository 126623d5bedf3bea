"""An MCP server with 50 tools, made with the official SDK: `python -m bench.mcp_server PORT`. `GET /methods` returns
how often each method was called."""

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import msgspec
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.case import Ground
from bench.server import clean_environment, free_port, started, until_up
from bench.wire import Wire, request

TOOLS = 50
_FIELD = {"type": "string", "description": "A text, as it is in the records."}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": dict.fromkeys(("query", "project", "owner", "state", "after"), _FIELD),
    "required": ["query"],
}
_methods: Counter[str] = Counter()


async def _count(context: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    _methods[context.method] += 1
    return await call_next(context)


async def _list(context: Any, params: Any) -> types.ListToolsResult:
    described = "Finds the records of a project that match a query, newest first, with their owner and state."
    tools = [types.Tool(name=f"find_{at}", description=described, input_schema=_SCHEMA) for at in range(TOOLS)]
    return types.ListToolsResult(tools=tools)


async def _call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="No records.")])


async def _show(request: Request) -> JSONResponse:
    return JSONResponse(_methods)


@asynccontextmanager
async def mcp_server(ground: Ground) -> AsyncIterator[int]:
    """Its port."""
    port = free_port()
    command = [sys.executable, "-m", "bench.mcp_server", str(port)]
    with started(command, clean_environment(), ground.folder / "mcp.log") as process:
        await until_up(port, process, "/methods")
        yield port


async def methods_of(port: int) -> dict[str, int]:
    wire = await Wire.connect(port)
    try:
        answer = await wire.ask(request("GET", "/methods", "none"))
        return msgspec.json.decode(answer.body, type=dict[str, int])
    finally:
        wire.close()


if __name__ == "__main__":
    server = Server("bench", on_list_tools=_list, on_call_tool=_call, get_tool_input_schema=lambda name: _SCHEMA)
    server.middleware.append(_count)
    app = server.streamable_http_app(custom_starlette_routes=[Route("/methods", _show)])
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
