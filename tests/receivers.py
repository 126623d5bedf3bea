"""A webhook receiver for tests: a real HTTP server with scripted behaviour, and the verification of signatures, written
from the Standard Webhooks specification."""

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

Writer = asyncio.StreamWriter
Behaviour = Callable[[Writer], Awaitable[None]]


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    given = [signature.partition(",") for signature in headers["webhook-signature"].split(" ")]
    return any(hmac.compare_digest(found.encode(), expected) for version, _, found in given if version == "v1")


class Received(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def answering(status: int, headers: str = "", body: bytes = b"") -> Behaviour:
    async def behave(writer: Writer) -> None:
        head = f"HTTP/1.1 {status} Some Reason\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return behave


async def slowly(writer: Writer) -> None:
    """204 after a pause in which other workers look for deliveries."""
    await asyncio.sleep(0.4)
    await answering(204)(writer)


async def hanging(writer: Writer) -> None:
    await asyncio.Event().wait()


async def resetting(writer: Writer) -> None:
    writer.transport.abort()


async def babbling(writer: Writer) -> None:
    writer.write(b"SMTP ready\r\n")
    await writer.drain()


async def flooding(writer: Writer) -> None:
    """200 with an endless body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def trickling(writer: Writer) -> None:
    """An endless response head."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: 1\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


class Receiver:
    """Uses one of `behaviours` for each request; the last one stays."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self.received: list[Received] = []
        self.behaviours = list(behaviours) or [answering(204)]
        self.port = 0
        self.at_once = 0
        self.most_at_once = 0

    def url(self, path: str = "/hook?token=shh") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                self.received.append(await read_request(reader))
                behave = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                await behave(writer)
        finally:
            self.at_once -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def receiving(*behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver(*behaviours)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.ensure_future(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, body)
