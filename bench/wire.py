"""HTTP with as little of its own cost as can be: on a small machine a full client would be what is measured."""

import asyncio
import re
from typing import Self, cast

from msgspec import Struct

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_NO_CONTENT = 204


class Answer(Struct, frozen=True):
    status: int
    body: bytes


class Wire(asyncio.Protocol):
    """One connection that is kept open, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = b""
        self._waiting: asyncio.Future[Answer] | None = None

    @classmethod
    async def connect(cls, port: int) -> Self:
        _, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return wire

    @property
    def is_closing(self) -> bool:
        """By whichever side."""
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    async def ask(self, request: bytes) -> Answer:
        if self.is_closing:
            raise ConnectionResetError("the server has closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: uvloop's transports are no subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_bytes = self._received.find(_HEAD_END)
        if head_bytes < 0:
            return
        status = int(self._received[9:12])
        found = _LENGTH.search(self._received, 0, head_bytes)
        assert found or status == _NO_CONTENT, "every answer but a stream says how long it is"
        start = head_bytes + len(_HEAD_END)
        end = start + (int(found[1]) if found else 0)
        if len(self._received) < end:
            return
        answer = Answer(status, self._received[start:end])
        self._received = self._received[end:]
        assert self._waiting is not None, "an answer to a question"
        self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server closed the connection"))


def request(
    method: str, path: str, key: str, body: bytes = b"", media_type: str = "application/json", **headers: str
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Authorization: Bearer {key}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines += [f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + body
