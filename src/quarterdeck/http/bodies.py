"""Receiving request bodies: bounded in size and in time, whatever the client does."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive

from quarterdeck import errors
from quarterdeck.settings import HttpSettings

T = TypeVar("T")

# A validation message quotes what was sent; nobody needs a megabyte of it back.
_MESSAGE_CHARACTERS = 300
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


async def receive_body(
    receive: Receive, announced_bytes: int | None, limit_bytes: int, settings: HttpSettings
) -> AsyncIterator[bytes]:
    """The body in pieces. Refuses it as soon as it is known to be too large, by its length before a byte is read."""
    if announced_bytes is not None and announced_bytes > limit_bytes:
        raise errors.too_large(limit_bytes)
    deadline = time.monotonic() + settings.body_seconds
    received = 0
    more = True
    while more:
        patience = min(settings.body_stall_seconds, deadline - time.monotonic())
        try:
            async with asyncio.timeout(patience):
                message = await receive()
        except TimeoutError:
            raise errors.too_slow("The request body arrived too slowly.") from None
        if message["type"] != "http.request":
            # Broken chunking, a body shorter than announced, and a client that left look alike here.
            raise errors.broken_body()
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(chunk)
        if received > limit_bytes:
            raise errors.too_large(limit_bytes)
        if chunk:
            yield chunk


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
