"""Between a transport of the SDK and its client: keeps from the client what a server may not flood it with."""

import re
from typing import Any

import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from quarterdeck.connections.mcp.model import McpFailure

# Bounds on messages of servers, so that none keeps the event loop busy for more than 20 ms: the SDK decodes and
# validates each message at once. A short message can have very many values, and the SDK describes every invalid one.

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
# Items of all other lists in a result or a request together. The SDK compares each part of a result with all kinds of
# parts.
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


# Requests of a server that have no answer yet. The client refuses each, but its answers wait for a server that does not
# read them.
_OPEN_REQUESTS = 16
TOO_EXPENSIVE = "The server sent a message with too many values or too much text."


class Problem:
    """Why a connection became unusable: the errors of the SDK do not carry the reason. The first counts."""

    def __init__(self) -> None:
        self.text: str | None = None
        # The server has forgotten the MCP session, so it has not looked at the request.
        self.is_lost_session = False

    def found(self, text: str) -> McpFailure:
        self.text = self.text or text
        return McpFailure(text)


# Both directions of a connection, as the client of the SDK takes them.
GuardedStreams = tuple[ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]]


def guarded(reader: Any, writer: Any, problem: Problem) -> GuardedStreams:
    """The streams of a transport. The SDK has no public type for them; their methods are those of anyio's streams."""
    guarded_reader = _Reader(reader, problem)
    return guarded_reader, _Writer(writer, guarded_reader)


class _Reader(ObjectReceiveStream[SessionMessage | Exception]):
    """Without notifications: progress, logs and changes of lists are not used. Requests reach the client, which refuses
    them (sampling, elicitation, roots) or answers (ping)."""

    def __init__(self, stream: Any, problem: Problem) -> None:
        self._stream = stream
        self._problem = problem
        self.open_requests = 0

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item: SessionMessage | Exception = await self._stream.receive()
            if isinstance(item, SessionMessage):
                if isinstance(item.message, types.JSONRPCNotification):
                    continue
                if has_too_many_items(item.message):
                    raise self._problem.found(TOO_EXPENSIVE)
                if isinstance(item.message, types.JSONRPCResponse):
                    _remove_output_schemas(item.message.result)
                if isinstance(item.message, types.JSONRPCRequest):
                    self.open_requests += 1
                    if self.open_requests > _OPEN_REQUESTS:
                        raise self._problem.found("The server sent too many requests.")
            return item

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Writer(ObjectSendStream[SessionMessage]):
    def __init__(self, stream: Any, reader: _Reader) -> None:
        self._stream = stream
        self._reader = reader

    async def send(self, item: SessionMessage) -> None:
        await self._stream.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._reader.open_requests -= 1

    async def aclose(self) -> None:
        await self._stream.aclose()


def _remove_output_schemas(result: dict[str, Any]) -> None:
    """The client would check results against them, and their patterns may take forever."""
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
