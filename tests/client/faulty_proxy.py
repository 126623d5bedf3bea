"""A proxy in front of the real API that damages responses. The requests may have taken effect."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from tests.world import Server

Behaviour = Callable[["Exchange"], Awaitable[None]]


class Exchange(Struct):
    """One request, and how to answer it."""

    request: bytes
    server: Server
    writer: asyncio.StreamWriter

    async def answer(self) -> bytes:
        """The response of the real server."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            head, _, body = self.request.partition(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            writer.write(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            return await reader.read()
        finally:
            writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Closes with RST instead of FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def passes(exchange: Exchange) -> None:
    await exchange.send(await exchange.answer())


async def resets_at_once(exchange: Exchange) -> None:
    exchange.reset()


async def resets_after_the_effect(exchange: Exchange) -> None:
    await exchange.answer()
    exchange.reset()


async def closes_after_the_effect(exchange: Exchange) -> None:
    await exchange.answer()


async def cuts_the_head(exchange: Exchange) -> None:
    await exchange.send((await exchange.answer())[:20])


async def cuts_the_body(exchange: Exchange) -> None:
    await exchange.send((await exchange.answer())[:-5])


async def cuts_a_body_without_length(exchange: Exchange) -> None:
    """An HTTP/1.0 body ends with the connection, so only the JSON shows that it is incomplete."""
    _, _, body = (await exchange.answer()).partition(b"\r\n\r\n")
    await exchange.send(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body[:-5])


async def cuts_a_chunk(exchange: Exchange) -> None:
    _, _, body = (await exchange.answer()).partition(b"\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    await exchange.send(head + b"%x\r\n" % len(body) + body[:-5])


async def sends_garbage(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(b"\x00\xff garbage \r\n\r\n" * 20)


async def sends_html(exchange: Exchange) -> None:
    await exchange.answer()
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>no</html>")


async def hangs(exchange: Exchange) -> None:
    await exchange.answer()
    await asyncio.sleep(600)


async def drips(exchange: Exchange) -> None:
    """Sends a byte now and then: a read timeout does not notice."""
    await exchange.answer()
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while not exchange.writer.is_closing():
        await exchange.send(b" ")
        await asyncio.sleep(0.05)


def refuses(status: int, *headers: str, code: str = "internal", after_the_effect: bool = False) -> Behaviour:
    async def refuse(exchange: Exchange) -> None:
        if after_the_effect:
            await exchange.answer()
        body = b'{"error":{"code":"%b","message":"Not now."}}' % code.encode()
        # The proxy closes after every response. A client that were not told would send its retry on this connection.
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
        lines.append("Content-Type: application/json")
        await exchange.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return refuse


class Proxy:
    """Each request uses the next behaviour of `script`. When it is empty, requests pass."""

    def __init__(self, server: Server, script: Sequence[Behaviour]) -> None:
        self.server = server
        self.script = list(script)
        self.requests: list[bytes] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
            self.requests.append(head + body)
            behave = self.script.pop(0) if self.script else passes
            await behave(Exchange(head + body, self.server, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def headers(self, name: str) -> list[str]:
        """The value of one header, for each request."""
        found = []
        for request in self.requests:
            lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
            values = dict(line.lower().split(": ", 1) for line in lines)
            found.append(values.get(name.lower(), ""))
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            await self._serve(reader, writer)

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
