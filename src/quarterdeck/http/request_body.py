"""Receiving request bodies, with limits on size and time."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from types import GenericAlias
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from quarterdeck.core import errors
from quarterdeck.core.settings import HttpSettings

# Readable messages for request bodies of the wrong form: which values are allowed, and what a pattern means.

_BAD_VALUE = re.compile(r"Invalid enum value '(.*)' - at `\$([^`]*)`", re.DOTALL)
_BAD_KEY = re.compile(r"Expected `str` matching regex .* - at `key` in `\$([^`]*)`", re.DOTALL)
UNKNOWN_FIELD = "Object contains unknown field"
_UNKNOWN_FIELD = re.compile(UNKNOWN_FIELD + r" `(.*?)`(?: - at `\$([^`]*)`)?", re.DOTALL)
_ANY_KEY = "[...]"
# Long values would push the allowed ones out of the message.
_VALUE_CHARACTERS = 100


def readable(fault: msgspec.DecodeError, raw: bytes, body_type: type) -> str:
    message = str(fault)
    if found := _BAD_VALUE.fullmatch(message):
        value, path = found.groups()
        if allowed := _values(_type_at(body_type, path)):
            full_path = _with_key(path, raw, value)
            return f"Invalid value '{value[:_VALUE_CHARACTERS]}' - at `${full_path}`. Allowed: {', '.join(allowed)}"
    if found := _BAD_KEY.fullmatch(message):
        path = found[1]
        expected = _type_at(body_type, path)
        key_type = expected.key_type if isinstance(expected, inspect.DictType) else None
        if isinstance(key_type, inspect.Metadata) and key_type.extra_json_schema:
            return f"Invalid key in `${path}`. A key is: {key_type.extra_json_schema['description']}"
    if found := _UNKNOWN_FIELD.fullmatch(message):
        name, path = found[1], found[2] or ""
        expected = _type_at(body_type, path)
        known = [field.encode_name for field in expected.fields] if isinstance(expected, inspect.StructType) else []
        where = f" - at `${path}`" if path else ""
        return f"{UNKNOWN_FIELD} `{name[:_VALUE_CHARACTERS]}`{where}. Known: {', '.join(known) or 'none'}"
    return message


def _values(expected: inspect.Type | None) -> list[str]:
    if isinstance(expected, inspect.EnumType):
        return [str(member.value) for member in expected.cls]
    return list(map(str, expected.values)) if isinstance(expected, inspect.LiteralType) else []


def _type_at(body_type: type, path: str) -> inspect.Type | None:
    """The type at a path such as `.skills[0].version`. None: there is none, or more than one."""
    current = _plain(inspect.type_info(body_type))
    for part in re.findall(r"\[[^\]]*\]|[^.\[]+", path):
        if isinstance(current, inspect.StructType):
            current = _plain(next((field.type for field in current.fields if field.encode_name == part), None))
        elif isinstance(current, inspect.DictType):
            current = _plain(current.value_type)
        elif isinstance(current, inspect.ListType):
            current = _plain(current.item_type)
        else:
            return None
    return current


def _plain(found: inspect.Type | None) -> inspect.Type | None:
    """Without descriptions and null."""
    while isinstance(found, inspect.Metadata):
        found = found.type
    if isinstance(found, inspect.UnionType):
        others = [one for one in found.types if not isinstance(one, inspect.NoneType)]
        return _plain(others[0]) if len(others) == 1 else None
    return found


def _with_key(path: str, raw: bytes, value: str) -> str:
    """msgspec does not name the key of an object without fixed names. Finds it by its value."""
    parent = path.removesuffix(_ANY_KEY)
    if parent == path or "[" in parent:
        return path
    try:
        current: Any = msgspec.json.decode(raw)
        for name in parent.split(".")[1:]:
            current = current[name]
        return f"{parent}.{next(key for key, found in current.items() if found == value)}"
    except (msgspec.DecodeError, RecursionError, LookupError, StopIteration):
        return path


# Discards the rest of a request body before an early response.
#
# A 401 or 413 is often known before the body has arrived. A server that closes the connection then resets it while the
# client is still sending, and most clients report a broken pipe instead of the response.


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


# Finds fields of a request body that its type does not have, also in objects inside it.
#
# Not with `forbid_unknown_fields` at the types themselves: they are also read from the database, where during an
# upgrade a newer release may have written fields that this release lacks. A copy of each type knows the names only, and
# skips all values besides objects with named fields.


def check_fields(raw: bytes, type_: type) -> None:
    """Raises msgspec.ValidationError for an unknown field. Values of a wrong type are left to the type itself."""
    try:
        _names_decoder(type_).decode(raw)
    except msgspec.ValidationError as fault:
        if str(fault).startswith(UNKNOWN_FIELD):
            raise


@cache
def _names_decoder(type_: type) -> msgspec.json.Decoder[Any]:
    names = _names(inspect.type_info(type_))
    return msgspec.json.Decoder(msgspec.Raw if names is None else names)


def _names(found: inspect.Type) -> Any:
    """The copy. None: a value of any shape."""
    match found:
        case inspect.Metadata():
            return _names(found.type)
        case inspect.UnionType():
            copies = [copy for copy in map(_names, found.types) if copy is not None]
            assert len(copies) <= 1, "objects and lists in a union cannot be told apart"
            return copies[0] if copies else None
        case inspect.StructType():
            return _struct_names(found)
        case inspect.DictType():
            values = _names(found.value_type)
            return None if values is None else GenericAlias(dict, (str, values))
        case inspect.ListType():
            items = _names(found.item_type)
            return None if items is None else GenericAlias(list, (items,))
    return None


def _struct_names(found: inspect.StructType) -> type[msgspec.Struct]:
    fields = []
    for field in found.fields:
        copy = _names(field.type)
        # Whether it is required is for the type itself to say.
        fields.append((field.name, msgspec.Raw if copy is None else copy | None, None))
    renamed = {field.name: field.encode_name for field in found.fields}
    return msgspec.defstruct(found.cls.__name__, fields, rename=renamed, kw_only=True, forbid_unknown_fields=True)


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
