"""An MCP server whose messages take long to handle. The event loop that reads them serves all other workspaces."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from threading import Thread
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.connections.mcp.model import McpFailure
from tests.mcp.hostile_server import Behaviour, Exchange, HostileServer, hostile_server
from tests.mcp.targets import PATIENT, connections, http_target

MIB = 1024**2
# A little less than the largest message.
ALLOWED = 3_900 * 1024
# Processor time of the loop's thread, so that other work on the machine does not count. The promise is 20 ms; this is
# what the watchdog reports.
LONGEST_SECONDS = 0.1
SCHEMA = {"type": "object"}


def _tools(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"name": f"tool{number}", "inputSchema": SCHEMA} | tool for number, tool in enumerate(tools)]}


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


LISTS = {
    "controls": _tools({"description": "\x7f" * 15 * MIB}),
    "smaller controls": _tools({"description": "\x7f" * ALLOWED}),
    "many controls": _tools(*[{"description": "é\x7f" * 12_000}] * 60),
    "controls in schemas": _tools(*[{"inputSchema": SCHEMA | {"description": "é\x7f" * 15_000}}] * 40),
    "a name": _tools({"name": "a" * ALLOWED}),
    "many values": _tools({"inputSchema": SCHEMA | {"a": [[]] * 4_900}}),
    "too many values": _tools({"inputSchema": SCHEMA | {"a": [[]] * 1_000_000}}),
    "invalid tools": {"tools": [{}] * 1_000},
    "icons": _tools(*[{"icons": [{}] * 100}] * 4),
}
CALLS = {
    "controls": _text("\x7f" * 15 * MIB),
    "smaller controls": _text("\x7f" * ALLOWED),
    "mixed controls": _text("é\x7f" * 500_000),
    "escapes": _text("\n" * 300_000),
    "too many escapes": _text("\n" * 3 * MIB),
    "values in text": _text("[" + "[]," * MIB + "[]]", structuredContent={"a": 1}),
    "values in texts": {
        "content": [{"type": "text", "text": "[" + "[]," * 3_000 + "[]]"}] * 400,
        "structuredContent": {"a": 1},
    },
    "values": _text("", structuredContent={"a": [[]] * 4_900}),
    "too many values": _text("", structuredContent={"a": [[]] * 1_000_000}),
    "invalid parts": {"content": [{}] * 490},
    "invalid audience": {"content": [{"type": "text", "text": "", "annotations": {"audience": [{}] * 490}}]},
    "an image": {"content": [{"type": "image", "mimeType": "image/png", "data": "a" * (2 * MIB)}]},
    "input requests": {"resultType": "input_required", "inputRequests": {str(one): {} for one in range(100)}},
}


@contextmanager
def serving_in_thread(behaviours: dict[str, Behaviour]) -> Iterator[HostileServer]:
    """Its work is not measured."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        with ExitStack() as stack:
            serving = hostile_server(behaviours)
            server = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result()
            stack.callback(lambda: asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result())
            yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def longest_step() -> AsyncIterator[list[float]]:
    """The longest time for which the loop of the caller was busy."""
    longest = [0.0]

    async def watch() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest[0] = max(longest[0], time.thread_time() - began)

    task = asyncio.create_task(watch())
    # A collection takes as long as the process is large.
    gc.disable()
    try:
        yield longest
    finally:
        gc.enable()
        task.cancel()


def _answering(result: Any, *, in_events: bool) -> Behaviour:
    encoded = msgspec.json.encode(result)

    async def answer(exchange: Exchange) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (exchange.id, encoded)
        if in_events:
            await exchange.start_events()
            await exchange.send(b"data: " + body + b"\n\n")
        else:
            await exchange.respond(200, body)

    return answer


async def _error(exchange: Exchange) -> None:
    error = {"code": 1, "message": "\x7f" * ALLOWED}
    await exchange.respond(200, msgspec.json.encode({"jsonrpc": "2.0", "id": exchange.id, "error": error}))


async def _lines(exchange: Exchange) -> None:
    await exchange.start_events()
    await exchange.send(b"a\n\n" * MIB)
    await exchange.send(b"a\n" * 2 * MIB)


@pytest.mark.long
async def test_no_message_keeps_the_event_loop_busy() -> None:
    behaviours: dict[str, Behaviour] = {"/error tools/call": _error, "/lines tools/call": _lines}
    for method, results in (("tools/list", LISTS), ("tools/call", CALLS)):
        for name, result in results.items():
            path = name.replace(" ", "-")
            behaviours[f"/{path} {method}"] = _answering(result, in_events=False)
            behaviours[f"/events/{path} {method}"] = _answering(result, in_events=True)
    took: dict[str, float] = {}
    with serving_in_thread(behaviours) as server:
        async with connections(PATIENT) as found:
            # The first connection loads the SDK.
            await found.list_tools(http_target(server.url("/polite")), uuid4())
            for asked in behaviours:
                path, method = asked.split(" ")
                target, owner = http_target(server.url(path)), uuid4()
                async with longest_step() as longest:
                    with suppress(McpFailure):
                        if method == "tools/list":
                            await found.list_tools(target, owner)
                        else:
                            await found.call(target, owner, "tool", {}, "key")
                    await found.close_owner(owner)
                took[asked] = longest[0]
    assert {asked: round(seconds, 3) for asked, seconds in took.items() if seconds > LONGEST_SECONDS} == {}
