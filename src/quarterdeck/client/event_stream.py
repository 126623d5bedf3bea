"""Following a session's events over several connections: a parser for Server-Sent Events, and the state of the
follower. No I/O."""

import random
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.client.calls import Response, error_from
from quarterdeck.client.errors import ApiError, ConnectionFailed, QuarterdeckError
from quarterdeck.client.models import Delta, Event, EventType, ModelRetry
from quarterdeck.client.requests import Id

if TYPE_CHECKING:
    import httpx2

EVENT_STREAM = "text/event-stream"
PAGE_LIMIT = 200
# Three missed heartbeats: the server sends one every 15 seconds by default.
SILENCE_SECONDS = 45.0
_RETRY_SECONDS = 1.0
# Ten reconnects then take more than a minute, enough for a restart of the server.
_MAX_RETRY_SECONDS = 15.0
_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED, EventType.ACTION_REQUIRED)
# A run has one message and a few tool calls under way.
_REMEMBERED_TEXTS = 64
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Far above what a server sends. Bounds the memory that an endless line can use.
_MAX_BYTES = 64 * 1024 * 1024


class Message(Struct, frozen=True):
    event: str
    data: bytes
    # None: the message has no id. It does not inherit that of the message before.
    id: str | None


class Parser:
    """An incremental parser for Server-Sent Events, as the HTML standard defines them. Returns complete messages only:
    one without its closing blank line was cut off."""

    def __init__(self) -> None:
        # The last `retry` of the stream.
        self.retry_seconds: float | None = None
        # Whether an event or a heartbeat comment has arrived.
        self.has_content = False
        self._is_first_line = True
        # The beginning of the line that has not ended yet. It is not searched again: a line can arrive in thousands of
        # chunks.
        self._line = bytearray()
        # A `\r` at the end of a chunk, which may be the first half of `\r\n`.
        self._held = b""
        self._event = ""
        self._id: str | None = None
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[Message]:
        """Raises ValueError if a message is too long."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        lines = self._complete_lines(_LINE_END.split(chunk.removesuffix(b"\r")))
        if len(self._line) + self._data_bytes > _MAX_BYTES:
            raise ValueError("a message is too long")
        found = [self._parse(line) for line in lines]
        return [message for message in found if message is not None]

    def _complete_lines(self, parts: list[bytes]) -> list[bytes]:
        """The lines that end before the last of these parts, which begins or continues an unfinished line."""
        *ended, last = parts
        lines = []
        for part in ended:
            lines.append(bytes(self._line) + part)
            self._line.clear()
        self._line += last
        if lines and self._is_first_line:
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
            self._is_first_line = False
        return lines

    def _parse(self, line: bytes) -> Message | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            self.has_content = True
        elif field == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_seconds = int(value[:9]) / 1000
        return None

    def _dispatch(self) -> Message | None:
        event, identifier, data = self._event, self._id, self._data
        self._event, self._id, self._data, self._data_bytes = "", None, [], 0
        if not data:
            return None
        self.has_content = True
        return Message(event or "message", b"\n".join(data), identifier)


def is_end(item: Event | Delta, run_id: Id | None) -> bool:
    """Whether the run has ended or waits for an answer with this event."""
    return isinstance(item, Event) and item.type in _ENDS and run_id is not None and str(item.run_id) == str(run_id)


class EventFollower:
    def __init__(self, after: int, reconnects: int, on_retry: Callable[[ModelRetry], None] | None = None) -> None:
        self.last_id = after
        # The open stream, so that another thread can interrupt it.
        self.response: httpx2.Response | None = None
        self._reconnects = reconnects
        self._on_retry = on_retry
        self._retry_seconds = _RETRY_SECONDS
        self._failures = 0
        self._parser = Parser()
        # Of each live text (run and call): which one it is, and how many characters of it were returned.
        self._texts: dict[tuple[UUID, str | None], tuple[tuple[int, int], int]] = {}

    def headers(self) -> dict[str, str]:
        """The headers of the next connection, which resumes after the last event that was returned."""
        self._parser = Parser()
        return {"Accept": EVENT_STREAM, "Last-Event-ID": str(self.last_id), "Cache-Control": "no-store"}

    def feed(self, chunk: bytes) -> Iterator[Event | Delta]:
        """The events in a chunk, one by one, so that events before a malformed one are still returned. Raises
        ConnectionFailed if the stream is malformed."""
        try:
            messages = self._parser.feed(chunk)
            self._retry_seconds = self._parser.retry_seconds or self._retry_seconds
            for message in messages:
                found = self._read(message)
                if found is not None:
                    yield found
        except (ValueError, msgspec.DecodeError) as error:
            raise ConnectionFailed(f"The event stream is malformed: {error}") from None
        if self._parser.has_content:
            self._failures = 0

    def _read(self, message: Message) -> Event | Delta | None:
        if message.event in ("message.delta", "tool.delta"):
            return self._unseen(msgspec.json.decode(message.data, type=Delta))
        if message.event == "model.retry" and self._on_retry is not None:
            self._on_retry(msgspec.json.decode(message.data, type=ModelRetry))
        if message.id is None:
            # A live-only message of a type that this version does not know.
            return None
        event = msgspec.json.decode(message.data, type=Event)
        if event.id <= self.last_id:
            return None
        self.last_id = event.id
        return event

    def _unseen(self, delta: Delta) -> Delta | None:
        """Without what an earlier connection has returned: each one sends a text from its beginning."""
        key, number = (delta.run_id, delta.call_id), (delta.attempt, delta.text_number)
        known, end = self._texts.get(key, (number, 0))
        start = max(delta.offset, end) if number == known else delta.offset
        delta = replace(delta, text=delta.text[start - delta.offset :], offset=start)
        if not delta.text:
            return None
        self._texts[key] = (number, start + len(delta.text))
        if len(self._texts) > _REMEMBERED_TEXTS:
            del self._texts[next(iter(self._texts))]
        return delta

    def response_received(self, response: Response) -> float:
        """Handles a response that is not a stream. Returns the pause before the next attempt, or raises."""
        if response.status == 200:
            return self.connection_failed(ConnectionFailed("The response is not an event stream."))
        error = error_from(response)
        if response.status == 429 or response.status >= 500:
            return self.connection_failed(error)
        raise error

    def connection_failed(self, error: QuarterdeckError) -> float:
        """Returns the pause before the next attempt. Raises the error after the last reconnect."""
        self._failures += 1
        if self._failures > self._reconnects:
            raise error
        seconds = min(_MAX_RETRY_SECONDS, self._retry_seconds * 2.0 ** min(self._failures - 1, 32))
        pause = seconds * (0.5 + random.random() / 2)  # noqa: S311  spreads clients, not a secret
        return pause + ((error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)

    def stream_ended(self) -> float:
        return self.connection_failed(ConnectionFailed("The event stream ended repeatedly without an event."))
