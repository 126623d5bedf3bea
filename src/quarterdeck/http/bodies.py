"""Receiving request bodies: bounded in size and in time, whatever the client does."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings

T = TypeVar("T")

# A validation message quotes what was sent; nobody needs a megabyte of it back.
_MESSAGE_CHARACTERS = 300
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


class Arriving:
    """A body on its way. Refused as soon as it is known to be too large, by its length before a byte is read."""

    def __init__(self, receive: Receive, announced_bytes: int | None, limit_bytes: int, settings: HttpSettings) -> None:
        self._receive = receive
        self._announced_bytes = announced_bytes
        self._limit_bytes = limit_bytes
        self._settings = settings
        self._deadline: float | None = None
        self._received = 0
        self._more = True

    async def whole(self) -> bytes:
        first = await self._next()
        return b"".join([first, *[piece async for piece in self.pieces()]]) if self._more else first

    async def pieces(self) -> AsyncIterator[bytes]:
        while self._more:
            if piece := await self._next():
                yield piece

    async def _next(self) -> bytes:
        if self._announced_bytes is not None and self._announced_bytes > self._limit_bytes:
            raise errors.too_large(self._limit_bytes)
        now = time.monotonic()
        if self._deadline is None:
            # From the first look on: whoever has to wait for a place first does not wait on the client.
            self._deadline = now + self._settings.body_seconds
        patience = min(self._settings.body_stall_seconds, self._deadline - now)
        try:
            async with asyncio.timeout(patience):
                message = await self._receive()
        except TimeoutError:
            raise errors.too_slow("The request body arrived too slowly.") from None
        if message["type"] != "http.request":
            # Broken chunking, a body shorter than announced, and a client that left look alike here.
            raise errors.broken_body()
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._received += len(piece)
        if self._received > self._limit_bytes:
            raise errors.too_large(self._limit_bytes)
        return piece


def decode_json(raw: bytes, type_: type[T]) -> T:
    try:
        # The decoder does not look at the text of fields that it leaves out.
        raw.decode()
        return _decoder(type_).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise errors.invalid(f"The body is not as expected: {fault}"[:_MESSAGE_CHARACTERS]) from None
    except RecursionError:
        raise errors.invalid("The body is nested too deeply.") from None


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    if type_ not in _decoders:
        _decoders[type_] = msgspec.json.Decoder(type_)
    return _decoders[type_]
