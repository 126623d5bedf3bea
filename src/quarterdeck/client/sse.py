"""Server-Sent Events, read piece by piece as the HTML standard says."""

import re

from msgspec import Struct

# `\r` at the very end may be the first half of `\r\n`: it waits for the next piece.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
# Far above what a server sends. A stream that never ends a line is no stream.
_MOST_BYTES = 64 * 1024 * 1024


class Message(Struct, frozen=True):
    event: str
    data: bytes
    # None: it came without one, which is not the same as with the one before.
    id: str | None


class Parser:
    """A message without its closing blank line is not given out: it was cut off."""

    def __init__(self) -> None:
        # As the stream has said last.
        self.retry_seconds: float | None = None
        # Whether anything but `retry` has come: an event, or the comment that says that the server is alive.
        self.alive = False
        self._begun = False
        self._rest = b""
        self._event = ""
        self._id: str | None = None
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, piece: bytes) -> list[Message]:
        """Raises ValueError on what no stream may hold."""
        self._rest += piece
        if not self._begun and len(self._rest) >= 3:
            self._rest = self._rest.removeprefix(b"\xef\xbb\xbf")
            self._begun = True
        *lines, self._rest = _LINE_END.split(self._rest)
        if len(self._rest) + self._data_bytes > _MOST_BYTES:
            raise ValueError("a message of the stream is too long")
        found = [self._take(line) for line in lines]
        return [message for message in found if message is not None]

    def _take(self, line: bytes) -> Message | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            self.alive = True
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
        self.alive = True
        return Message(event or "message", b"\n".join(data), identifier)
