"""An MCP server over HTTP, made with the official SDK, for tests and the bench: `python -m tests.mcp_server PORT`.

`GET /state` says what it was asked. `POST /change` changes the description of `echo`."""

import asyncio
import base64
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import mcp_types as types
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.world import START_SECONDS, free_port

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_KEY = "quarterdeck/idempotency-key"


class Fixture:
    def __init__(self, more_tools: int) -> None:
        self._more_tools = more_tools
        self._description = "Returns the text."
        # How often each method was called.
        self._methods: Counter[str] = Counter()
        self._keys: list[str | None] = []
        # Calls of `slow` that run, and those that were cancelled.
        self._running = 0
        self._cancelled = 0

    def app(self) -> Any:
        # Without the schema, the SDK's server lists its tools for each call.
        server = Server(
            "fixture", on_list_tools=self._list, on_call_tool=self._call, get_tool_input_schema=lambda name: _NOTHING
        )
        server.middleware.append(self._count)
        routes = [Route("/state", self._state), Route("/change", self._change, methods=["POST"])]
        return server.streamable_http_app(custom_starlette_routes=routes)

    async def _count(self, context: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        self._methods[context.method] += 1
        return await call_next(context)

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        echo = types.Tool(
            name="echo",
            description=self._description,
            input_schema=_TEXT,
            annotations=types.ToolAnnotations(read_only_hint=True),
        )
        others = [
            types.Tool(name=name, description=f"The tool {name}.", input_schema=_NOTHING)
            for name in ("slow", "image", "die", "fail")
        ]
        more = [
            types.Tool(name=f"more_{number}", description="Looks up records by their text. " * 8, input_schema=_TEXT)
            for number in range(self._more_tools)
        ]
        return types.ListToolsResult(tools=[echo, *others, *more])

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self._keys.append((params.meta or {}).get(_KEY))
        match params.name:
            case "slow":
                await self._wait()
            case "image":
                image = types.ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
                return types.CallToolResult(content=[types.TextContent(type="text", text="A chart."), image])
            case "die":
                os._exit(1)
            case "fail":
                failure = types.TextContent(type="text", text="No such record.")
                return types.CallToolResult(content=[failure], is_error=True)
        text = str((params.arguments or {}).get("text", "done"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def _wait(self) -> None:
        self._running += 1
        try:
            await asyncio.sleep(START_SECONDS)
        except asyncio.CancelledError:
            self._cancelled += 1
            raise
        finally:
            self._running -= 1

    async def _state(self, request: Request) -> JSONResponse:
        state = {"keys": self._keys, "running": self._running, "cancelled": self._cancelled}
        return JSONResponse({"methods": self._methods, **state})

    async def _change(self, request: Request) -> JSONResponse:
        self._description = (await request.json())["description"]
        return JSONResponse({})


class McpServer:
    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.process = process
        self._base = f"http://127.0.0.1:{port}"

    async def state(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self._base, timeout=START_SECONDS) as http:
            state: dict[str, Any] = (await http.get("/state")).json()
            return state

    async def change(self, description: str) -> None:
        async with httpx.AsyncClient(base_url=self._base, timeout=START_SECONDS) as http:
            (await http.post("/change", json={"description": description})).raise_for_status()


@contextmanager
def mcp_server(more_tools: int = 0) -> Iterator[McpServer]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.mcp_server", str(port), str(more_tools)])
    try:
        _wait_until_up(f"http://127.0.0.1:{port}/state", process)
        yield McpServer(port, process)
    finally:
        process.kill()
        process.wait()


def _wait_until_up(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the MCP server ended"
        try:
            httpx.get(url, timeout=5)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the MCP server did not start")


if __name__ == "__main__":
    uvicorn.run(Fixture(int(sys.argv[2])).app(), port=int(sys.argv[1]), log_level="warning")
