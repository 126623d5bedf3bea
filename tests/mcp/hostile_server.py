"""An MCP server over streamable HTTP that does what no server should, by the path of its URL. It uses no library: none
would send such responses."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

GIB = 1024**3
_CHUNK = b"a" * 65536


class Seen(Struct, frozen=True):
    method: str
    path: str
    headers: dict[str, str]
    # A message of JSON-RPC.
    message: dict[str, Any]


class Exchange:
    def __init__(self, seen: Seen, writer: asyncio.StreamWriter, headers: list[str]) -> None:
        self.seen = seen
        self.writer = writer
        self._headers = headers

    @property
    def id(self) -> Any:
        return self.seen.message.get("id")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(self, status: int, body: bytes = b"", *headers: str, kind: str = "application/json") -> None:
        lines = [f"HTTP/1.1 {status} Any", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join([*lines, *self._headers, "", ""]).encode() + body)

    async def result(self, result: Any, **changed: Any) -> None:
        await self.respond(200, msgspec.json.encode({"jsonrpc": "2.0", "id": self.id, "result": result, **changed}))

    async def text(self, text: str) -> None:
        await self.result({"content": [{"type": "text", "text": text}]})

    async def start_events(self) -> None:
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")

    async def event(self, message: dict[str, Any]) -> None:
        await self.send(b"data: " + msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n\n")


Behaviour = Callable[[Exchange], Awaitable[None]]


class HostileServer:
    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        """`behaviours`: by path or by path and method of JSON-RPC: `/flood tools/call`."""
        self._behaviours = behaviours
        self.seen: list[Seen] = []
        # Headers of every response.
        self.headers: list[str] = []
        self.port = 0
        # Tasks of open connections.
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                seen = await _read(reader)
                self.seen.append(seen)
                method = seen.message.get("method", "")
                behaviour = self._behaviours.get(f"{seen.path} {method}") or self._behaviours.get(seen.path) or polite
                await behaviour(Exchange(seen, writer, self.headers))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method, path, headers, msgspec.json.decode(body) if body else {})


@asynccontextmanager
async def hostile_server(
    behaviours: Mapping[str, Behaviour], tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[HostileServer]:
    found = HostileServer(behaviours)
    server = await asyncio.start_server(found.serve, host, port, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.close()


async def polite(exchange: Exchange) -> None:
    """A server of a protocol before 2026, without MCP sessions."""
    method = exchange.seen.message.get("method")
    if method == "initialize":
        info = {"name": "x", "version": "1"}
        await exchange.result({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        await exchange.result({"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        await exchange.text("polite")
    elif exchange.id is None:
        await exchange.respond(202)
    else:
        await exchange.respond(400)


async def discover(exchange: Exchange) -> None:
    """As a server of the protocol 2026-07-28."""
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "public"}
    await exchange.result(found | {"resultType": "complete"})


async def endless_events(exchange: Exchange) -> None:
    await exchange.start_events()
    while True:
        await exchange.event({"method": "notifications/message", "params": {"level": "info", "data": "x" * 10_000}})


async def one_endless_event(exchange: Exchange) -> None:
    await exchange.start_events()
    await exchange.send(b"data: ")
    while True:
        await exchange.send(_CHUNK)


async def requests(exchange: Exchange) -> None:
    await exchange.start_events()
    params = {"messages": [], "maxTokens": 1}
    for number in range(100_000):
        await exchange.event({"id": number, "method": "sampling/createMessage", "params": params})


async def hang(exchange: Exchange) -> None:
    await asyncio.Event().wait()


async def one_gib(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(GIB // len(_CHUNK)):
        await exchange.send(b"%x\r\n%s\r\n" % (len(_CHUNK), _CHUNK))


async def announced_gib(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % GIB)


async def gzip_bomb(exchange: Exchange) -> None:
    await exchange.respond(200, gzip.compress(bytes(64 * 1024 * 1024)), "Content-Encoding: gzip")


async def garbage(exchange: Exchange) -> None:
    await exchange.respond(200, b"{{{{")


async def invalid_result(exchange: Exchange) -> None:
    await exchange.result({"content": "not a list"})


async def many_parts(exchange: Exchange) -> None:
    """Each is invalid in many ways."""
    await exchange.result({"content": [{}] * 400_000})


async def many_values(exchange: Exchange) -> None:
    await exchange.result({"content": [], "structuredContent": {"a": [[]] * 1_000_000}})


async def many_in_part(exchange: Exchange) -> None:
    part = {"type": "text", "text": "", "annotations": {"audience": [{}] * 300_000}}
    await exchange.result({"content": [part]})


async def huge_number(exchange: Exchange) -> None:
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":1%s}}}'
    await exchange.respond(200, body % (exchange.id, b"0" * 5000))


async def wrong_type(exchange: Exchange) -> None:
    await exchange.respond(200, b"<html>", kind="text/html")


async def drip(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
    while True:
        await exchange.send(b" ")
        await asyncio.sleep(0.02)


async def wrong_id(exchange: Exchange) -> None:
    await exchange.result({"content": []}, id=999)


async def break_off(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    raise OSError


async def resume_forever(exchange: Exchange) -> None:
    """Ends the stream at once, and asks the client to connect again at once."""
    await exchange.start_events()
    await exchange.send(b"id: 1\nretry: 0\ndata:\n\n")
    raise OSError


async def failing(exchange: Exchange) -> None:
    await exchange.respond(503, b"out of order", kind="text/plain")


def redirecting(location: str) -> Behaviour:
    async def redirect(exchange: Exchange) -> None:
        await exchange.respond(307, b"", f"Location: {location}")

    return redirect
