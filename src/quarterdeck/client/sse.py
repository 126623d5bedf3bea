"""An incremental parser for Server-Sent Events, as the HTML standard defines them."""

import re

from msgspec import Struct

# A `\r` at the end of the buffer may be the first half of `\r\n`.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
# Far above what a server sends. Bounds the memory that an endless line can use.
_MAX_BYTES = 64 * 1024 * 1024


class Message(Struct, frozen=True):
    event: str
    data: bytes
    # None: the message has no id. It does not inherit that of the message before.
    id: str | None


class Parser:
    """Returns complete messages only: one without its closing blank line was cut off."""

    def __init__(self) -> None:
        # The last `retry` of the stream.
        self.retry_seconds: float | None = None
        # Whether an event or a heartbeat comment has arrived.
        self.has_content = False
        self._started = False
        self._buffer = b""
        self._event = ""
        self._id: str | None = None
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[Message]:
        """Raises ValueError if a message is too long."""
        self._buffer += chunk
        if not self._started and len(self._buffer) >= 3:
            self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf")
            self._started = True
        *lines, self._buffer = _LINE_END.split(self._buffer)
        if len(self._buffer) + self._data_bytes > _MAX_BYTES:
            raise ValueError("a message is too long")
        found = [self._parse(line) for line in lines]
        return [message for message in found if message is not None]

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
