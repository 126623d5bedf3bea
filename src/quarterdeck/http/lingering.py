"""Answering before the request's body has arrived, so that the client still gets to read the answer.

A server that closes while a client is sending resets the connection, and the client sees a broken pipe where the
answer says 401 or 413. So after such an answer the rest of the body is received and thrown away, for a bounded time.
"""

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive, Send

from quarterdeck.http.headers import Headers
from quarterdeck.settings import HttpSettings

_TOO_SLOW = 408


class Lingering:
    """`receive` and `send` of one request."""

    def __init__(self, headers: Headers, receive: Receive, send: Send, settings: HttpSettings) -> None:
        self._receive = receive
        self._send = send
        self._settings = settings
        self._missing_bytes = _announced_bytes(headers)
        # Who expects a 100 has sent nothing yet and will not, now that the answer is another.
        self._body_ended = self._missing_bytes == 0 or b"expect" in headers

    async def receive(self) -> Message:
        message = await self._receive()
        if self._missing_bytes is not None and message["type"] == "http.request":
            self._missing_bytes -= len(message.get("body", b""))
            if not self._missing_bytes:
                # The server would say so in a message of its own, for which everybody would wait another turn.
                message["more_body"] = False
        self._body_ended = not message.get("more_body", False)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start" and message["status"] == _TOO_SLOW:
            # Who was given up on for being slow is not waited for.
            self._body_ended = True
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        return self._linger(message) if is_last and not self._body_ended else self._send(message)

    async def _linger(self, message: Message) -> None:
        # All but the last byte: with the last one the server takes the exchange for done and closes.
        body = message.get("body", b"")
        await self._send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        await self._drain()
        await self._send({"type": "http.response.body", "body": body[-1:], "more_body": False})

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._settings.linger_seconds):
                while not self._body_ended:
                    async with asyncio.timeout(self._settings.linger_stall_seconds):
                        await self.receive()
        except TimeoutError:
            return


def _announced_bytes(headers: Headers) -> int | None:
    """None: the end of the body will tell."""
    if b"transfer-encoding" in headers:
        return None
    return headers.content_length if b"content-length" in headers else 0
