"""Discards the rest of a request body before an early response.

A 401 or 413 is often known before the body has arrived. A server that closes the connection then resets it while the
client is still sending, and most clients report a broken pipe instead of the response.
"""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from quarterdeck.core.settings import HttpSettings


class UnreadBody:
    def __init__(self, headers: Headers, receive: Receive, settings: HttpSettings) -> None:
        self._receive = receive
        self._settings = settings
        # A client that sent Expect has not sent its body and waits for the status first.
        self._is_coming = "expect" not in headers and (
            "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        )

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_coming = False
        return message

    async def discard(self) -> None:
        """Receive the rest, within limits of time. Memory stays flat: each piece is dropped."""
        if not self._is_coming:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while self._is_coming:
                    async with asyncio.timeout(self._settings.drain_stall_seconds):
                        await self.receive()
