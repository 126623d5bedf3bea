"""Joins the pieces of a streamed answer before the provider's library decodes them.

Libraries build objects for every word or two that a provider sends, which takes most of a worker's time while text
streams. This hook for responses of the HTTP client hands the text on at once and gives the library one piece in place
of many that differ in nothing but their text. It knows the events of OpenAI's chat completions and responses and of
Anthropic's messages; all other events go through byte for byte.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from quarterdeck.models.announced_limits import used_up_seconds

# A longer event, or more text in one piece, is passed on: memory stays bounded, and the caller sees how long it is.
_HELD_BYTES = 64 * 1024
# An answer takes at most a tenth longer by pauses.
_PAUSED_SHARE = 0.1
# Fields that differ from piece to piece and have no meaning without the others.
_COUNTERS = frozenset({"sequence_number", "obfuscation"})
_ANTHROPIC_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_CHAT_TEXTS = ("content", "reasoning_content", "reasoning")
_VISIBLE_TEXTS = frozenset({"text", "content"})
_RESPONSES_TEXT = "response.output_text.delta"


class Listener(Struct):
    """Who sent the request, and wants to know what comes."""

    # Gets the text that people see.
    on_text: Callable[[str], None]
    # Called whenever bytes have come from the connection.
    on_bytes: Callable[[], None]
    # How long text may take to get here, so that more of it comes at once.
    pause_seconds: Callable[[], float]
    # How many characters `on_text` got that the library has not seen yet.
    ahead: int = 0
    # Called with the seconds for which the provider answers no more requests, if it announces that.
    on_used_up: Callable[[float], None] | None = None

    def unseen(self, text: str) -> str:
        """Of a text that comes out of the library, the part that `on_text` did not get."""
        known = min(self.ahead, len(text))
        self.ahead -= known
        return text[known:]


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """For requests that are sent inside."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


async def join_pieces(response: httpx2.Response) -> None:
    """For `event_hooks["response"]` of an HTTP client."""
    listener = _LISTENER.get()
    if listener is not None and listener.on_used_up is not None and (seconds := used_up_seconds(response.headers)):
        listener.on_used_up(seconds)
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    # Compressed bytes are decoded behind this hook.
    if listener is not None and is_stream and "content-encoding" not in response.headers:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _JoinedStream(response.stream, listener, _PacedReads(response, listener))


class _PacedReads:
    """Lets pieces come together in the buffer of the connection: reading each one costs more than all the rest.

    Pauses before each read of the connection, which the HTTP library offers as an extension of the response. A library
    that reads in another way is not slowed down."""

    def __init__(self, response: httpx2.Response, listener: Listener) -> None:
        self._listener = listener
        self._connection: Any = response.extensions.get("network_stream")
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()
        if self._connection is not None:
            self._read_now = self._connection.read
            self._connection.read = self._read

    async def _read(self, max_bytes: int, **options: Any) -> bytes:
        now, pause_seconds = self._clock(), self._listener.pause_seconds()
        # Until the next multiple: all runs of a worker then read, and send, at the same moments.
        until_next = pause_seconds - now % pause_seconds
        await asyncio.sleep(min(until_next, (now - self._started) * _PAUSED_SHARE))
        data: bytes = await self._read_now(max_bytes, **options)
        self._listener.on_bytes()
        return data

    def end(self) -> None:
        """The connection is used for other requests afterwards."""
        if self._connection is not None:
            self._connection.read = self._read_now


class _JoinedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, listener: Listener, pace: _PacedReads) -> None:
        self._stream = stream
        self._pace = pace
        self._listener = listener
        self._held: _Piece | None = None
        self._has_text = False
        self._last = b""
        # Otherwise the rest of the stream goes through as it is.
        self._joins = True

    async def aclose(self) -> None:
        self._pace.end()
        await self._stream.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for data in self._stream:
            if not self._joins:
                yield data
                continue
            *events, rest = (rest + data).split(b"\n\n")
            passed = b"".join([self._next(event) for event in events])
            # Another kind of line ends, or one event without an end.
            if b"\r" in data or len(rest) >= _HELD_BYTES:
                self._joins = False
            if not self._joins:
                passed += self._release() + rest
                rest = b""
            if passed:
                yield passed
        if rest or self._held is not None:
            yield self._release() + rest

    def _next(self, event: bytes) -> bytes:
        """What goes to the library now."""
        piece = _piece_of(event) if self._joins else None
        is_repeated, self._last = event == self._last, event
        # The same usage twice in a row would count twice. The same text may be meant, unless it has a number.
        if is_repeated and self._joins and (b'"usage"' in event if piece is None else piece.has_number):
            return b""
        if piece is None:
            return self._release() + event + b"\n\n"
        if piece.is_visible and piece.text:
            if not self._has_text and piece.text.startswith("<"):
                # Perhaps a tag around reasoning, which pydantic-ai takes out of the text.
                self._joins = False
                return self._release() + event + b"\n\n"
            self._has_text = True
            self._listener.on_text(piece.text)
            self._listener.ahead += len(piece.text)
        held = self._held
        if held is not None and held.goes_on_with(piece):
            held.add(piece)
            return b""
        passed = self._release()
        self._held = piece
        return passed

    def _release(self) -> bytes:
        held, self._held = self._held, None
        return b"" if held is None else held.event


class _Piece:
    """An event whose only content is a text."""

    def __init__(self, event: bytes, head: bytes, data: dict[str, Any], place: dict[str, Any], field: str) -> None:
        """`place[field]` is the text; it is a part of `data`."""
        self.text: str = place[field]
        place[field] = ""
        self.has_number = bool(data.get("sequence_number"))
        self.is_visible = field in _VISIBLE_TEXTS or data.get("type") == _RESPONSES_TEXT
        self._only = event
        self._head = head
        self._data = data
        self._place = place
        self._field = field
        self._frame = {name: value for name, value in data.items() if name not in _COUNTERS}
        self._texts = [self.text]
        self._size = len(self.text)

    def goes_on_with(self, other: "_Piece") -> bool:
        return self._size < _HELD_BYTES and self._head == other._head and self._frame == other._frame

    def add(self, other: "_Piece") -> None:
        self._texts.append(other.text)
        self._size += len(other.text)

    @property
    def event(self) -> bytes:
        if len(self._texts) == 1:
            return self._only + b"\n\n"
        self._place[self._field] = "".join(self._texts)
        return self._head + b"data: " + msgspec.json.encode(self._data) + b"\n\n"


def _piece_of(event: bytes) -> _Piece | None:
    head, separator, body = event.partition(b"data: ")
    # At most a line with the name of the event, and then one line of data.
    if not separator or b"\n" in body or (head and not (head.startswith(b"event: ") and head.count(b"\n") == 1)):
        return None
    try:
        data = msgspec.json.decode(body)
        found = _text_of(data)
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError):
        return None
    if found is None or not isinstance(found[0].get(found[1]), str):
        return None
    return _Piece(event, head, data, *found)


def _text_of(data: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The object that holds the text, and its field. Errors mean that there is none."""
    kind = data.get("type")
    if kind == "content_block_delta":
        delta = data["delta"]
        return delta, _ANTHROPIC_TEXTS[delta["type"]]
    if isinstance(kind, str):
        return (data, "delta") if kind.endswith(".delta") and not data.get("logprobs") else None
    [choice] = data["choices"]
    delta = choice["delta"]
    if choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    texts = [name for name in _CHAT_TEXTS if delta.get(name)]
    if delta.get("tool_calls"):
        [call] = delta["tool_calls"]
        return None if texts else (call["function"], "arguments")
    return (delta, texts[0]) if len(texts) == 1 else None
