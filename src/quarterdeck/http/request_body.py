"""Receiving request bodies, with limits on size and time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http.body_errors import readable
from quarterdeck.http.body_fields import check_fields

T = TypeVar("T")

# A validation message quotes the input, which may be large.
_MESSAGE_CHARACTERS = 300
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


class RequestBody:
    """A body that is being received. A body over the limit is refused at the first byte too many, or before any byte
    if its Content-Length says so."""

    def __init__(self, receive: Receive, content_length: int | None, limit_bytes: int, settings: HttpSettings) -> None:
        self._receive = receive
        self._content_length = content_length
        self._limit_bytes = limit_bytes
        self._settings = settings
        self._deadline: float | None = None
        self._received = 0
        self._more = True
        # The current window of the lowest rate: time that we waited for the client, and bytes that came.
        self._window_seconds = 0.0
        self._window_bytes = 0

    async def read(self) -> bytes:
        pieces = []
        while self._more:
            pieces.append(await self._next())
        return b"".join(pieces)

    async def stream(self) -> AsyncIterator[bytes]:
        while self._more:
            if piece := await self._next():
                yield piece

    async def _next(self) -> bytes:
        if self._content_length is not None and self._content_length > self._limit_bytes:
            raise errors.too_large(self._limit_bytes)
        now = time.monotonic()
        if self._deadline is None:
            # Counted from the first read: a request may wait for an upload slot before that.
            self._deadline = now + self._settings.body_seconds
        try:
            async with asyncio.timeout(self._longest_wait(now)):
                message = await self._receive()
        except TimeoutError:
            raise errors.too_slow("The request body arrived too slowly.") from None
        self._window_seconds += time.monotonic() - now
        if message["type"] != "http.request":
            # Broken chunking, a body that is too short and a client that left: servers do not tell them apart.
            raise errors.broken_body()
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._received += len(piece)
        self._window_bytes += len(piece)
        if self._received > self._limit_bytes:
            raise errors.too_large(self._limit_bytes)
        return piece

    def _longest_wait(self, now: float) -> float:
        """How long the next piece may take. A window with too few bytes ends the body; any other window is followed by
        the next one. A body that is complete within a window has no lowest rate."""
        settings = self._settings
        assert self._deadline is not None
        longest = min(settings.body_stall_seconds, self._deadline - now)
        if self._window_bytes < settings.body_bytes_per_second * settings.body_rate_seconds:
            return min(longest, settings.body_rate_seconds - self._window_seconds)
        if self._window_seconds >= settings.body_rate_seconds:
            self._window_seconds, self._window_bytes = 0.0, 0
        return longest


def decode_json(raw: bytes, type_: type[T]) -> T:
    try:
        # msgspec does not validate the text of values that it skips.
        raw.decode()
        # First: a misspelled name says more than the missing one.
        check_fields(raw, type_)
        return _decoder(type_).decode(raw)
    except msgspec.DecodeError as fault:
        raise errors.invalid(f"Invalid body: {readable(fault, raw, type_)}"[:_MESSAGE_CHARACTERS]) from None
    except UnicodeDecodeError as fault:
        raise errors.invalid(f"Invalid body: {fault}"[:_MESSAGE_CHARACTERS]) from None
    except RecursionError:
        raise errors.invalid("The body is nested too deeply.") from None


def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    if type_ not in _decoders:
        _decoders[type_] = msgspec.json.Decoder(type_)
    return _decoders[type_]
