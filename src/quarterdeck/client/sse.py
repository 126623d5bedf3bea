"""An incremental parser for Server-Sent Events, as the HTML standard defines them."""

import re

from msgspec import Struct

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
    """Returns complete messages only: one without its closing blank line was cut off."""

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
