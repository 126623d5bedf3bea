"""Bounds on messages of servers, so that none keeps the event loop busy for more than 20 ms: the SDK decodes and
validates each message at once. A short message can have very many values, and the SDK describes every invalid one."""

import re
from typing import Any

import mcp_types as types

# A message is looked at in pieces of this size, between which other tasks go on. The SDK reads event streams in the
# same pieces; a piece may have one line for each byte.
PIECE_BYTES = 8 * 1024
# Measured times of decoding relative to that of a plain byte, about 1.5 ns. Values are created as Python objects, and
# looked at again by each later step.
_NOT_ASCII_UNITS = 4
_ESCAPE_UNITS = 25
_LINE_UNITS = 100
_VALUE_UNITS = 1000
_MAX_UNITS = 10_000_000
# The rest of an unterminated string is skipped as well: JSON has no line breaks in strings.
_STRING = re.compile(rb'"[^"\n]*"?')
_ASCII = bytes(range(128))

_MAX_TOOLS = 1000
# Of all other lists in a result or a request together. The SDK compares each part of a result with all kinds of parts.
_MAX_ITEMS = 500
_MAX_INPUT_REQUESTS = 100
# The SDK does not look inside.
_NOT_VALIDATED = frozenset({"structuredContent", "inputSchema", "outputSchema", "_meta"})


class DecodingCost:
    """Of the messages in a response, from its bytes as they arrive."""

    def __init__(self, *, is_event_stream: bool = False) -> None:
        """In an event stream, each event is a message of its own."""
        self._is_event_stream = is_event_stream
        self._units = 0
        self._in_string = False
        # The end of the last piece whose meaning depends on the next one: a backslash, or line breaks.
        self._held = b""

    def exceeds(self, piece: bytes) -> bool:
        """Whether the message is too expensive to decode, with this piece of at most PIECE_BYTES."""
        data = self._held + piece
        kept = data.rstrip(b"\r\n")
        # Four bytes hold an empty line, whatever the line breaks are.
        self._held = data[len(kept) :][-4:]
        text = kept.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\\\\", b"x").replace(b'\\"', b"x")
        if text.endswith(b"\\") and not self._held:
            self._held, text = b"\\", text[:-1]
        if self._in_string:
            text = b'"' + text
        self._in_string = text.rpartition(b"\n")[2].count(b'"') % 2 == 1
        outside = _STRING.sub(b"x", text)
        units = (
            len(kept)
            + _NOT_ASCII_UNITS * (0 if kept.isascii() else len(kept.translate(None, _ASCII)))
            + _ESCAPE_UNITS * kept.count(b"\\")
            + _LINE_UNITS * outside.count(b"\n")
            + _VALUE_UNITS * sum(map(outside.count, (b",", b"[", b"{")))
        )
        self._units += units
        if self._units > _MAX_UNITS:
            return True
        if self._is_event_stream and b"\n\n" in outside:
            self._units = units
        return False


def decodes_quickly(data: bytes) -> bool:
    """Of one message. To be called in a thread: reading the whole message takes longer than 20 ms."""
    cost = DecodingCost()
    return not any(cost.exceeds(data[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES))


def has_too_many_items(message: types.JSONRPCMessage) -> bool:
    """For the validation by the SDK, which takes the longest for invalid items."""
    if isinstance(message, types.JSONRPCError):
        return False
    values = dict((message.result if isinstance(message, types.JSONRPCResponse) else message.params) or {})
    tools, input_requests = values.get("tools"), values.get("inputRequests")
    items = -min(len(tools), _MAX_TOOLS) if isinstance(tools, list) else 0
    if isinstance(input_requests, dict) and len(input_requests) > _MAX_INPUT_REQUESTS:
        return True
    waiting: list[Any] = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(part for name, part in value.items() if name not in _NOT_VALIDATED)
        elif isinstance(value, list):
            items += len(value)
            if items > _MAX_ITEMS:
                return True
            waiting.extend(value)
    return False
