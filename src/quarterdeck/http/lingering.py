"""Answering before the request's body has arrived, so that the client still gets to read the answer.

A server that closes while a client is sending resets the connection, and the client sees a broken pipe where the
answer says 401 or 413. So after such an answer the rest of the body is received and thrown away, for a bounded time.
"""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from quarterdeck.settings import HttpSettings

_TOO_SLOW = 408


class Lingering:
    """`receive` and `send` of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: HttpSettings) -> None:
        self._receive = receive
        self._send = send
        self._settings = settings
        names = {key for key, _ in scope["headers"]}
        # Who expects a 100 has sent nothing yet and will not, now that the answer is another.
        self._body_ended = b"expect" in names or names.isdisjoint({b"content-length", b"transfer-encoding"})

    async def receive(self) -> Message:
        message = await self._receive()
        self._body_ended = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == _TOO_SLOW:
            # Who was given up on for being slow is not waited for.
            self._body_ended = True
        if message["type"] == "http.response.body" and not message.get("more_body", False) and not self._body_ended:
            # All but the last byte: with the last one the server takes the exchange for done and closes.
            body = message.get("body", b"")
            await self._send({"type": "http.response.body", "body": body[:-1], "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": body[-1:], "more_body": False}
        await self._send(message)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._settings.linger_seconds):
                while not self._body_ended:
                    async with asyncio.timeout(self._settings.linger_stall_seconds):
                        await self.receive()
        except TimeoutError:
            return
