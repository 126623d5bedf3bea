"""Where a body ends: by its announced length, or by its chunks."""

import re
from collections.abc import Callable

from quarterdeck.core import errors
from quarterdeck.wire.head import read_fields

# Of one chunk's size and extensions, and of all trailers together.
_MOST_LINE_BYTES = 16 * 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MOST_CHUNK_BYTES = 2**60
_LINE_END = b"\r\n"

_Step = Callable[[bytes, int, list[bytes]], int | None]


class Sized:
    def __init__(self, length: int) -> None:
        self._missing = length
        self.has_ended = length == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What belongs to the body, and what follows it."""
        piece, rest = (data, b"") if len(data) <= self._missing else (data[: self._missing], data[self._missing :])
        self._missing -= len(piece)
        self.has_ended = not self._missing
        return piece, rest


class Chunked:
    def __init__(self) -> None:
        # What came of something that is not there as a whole yet.
        self._begun = b""
        # Of the chunk that is being read.
        self._missing = 0
        self._expects: _Step = self._size
        self.has_ended = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """As for `Sized`. Raises where the framing is broken."""
        pieces: list[bytes] = []
        data, self._begun = self._begun + data, b""
        at = 0
        while at < len(data) and not self.has_ended:
            behind = self._expects(data, at, pieces)
            if behind is None:
                self._begun = data[at:]
                return b"".join(pieces), b""
            at = behind
        return b"".join(pieces), data[at:]

    # Each returns where what it expects has ended, or None if that is not there yet.

    def _size(self, data: bytes, at: int, _: list[bytes]) -> int | None:
        end = data.find(_LINE_END, at, at + _MOST_LINE_BYTES)
        if end < 0:
            _check_length(data, at)
            return None
        match = _SIZE.fullmatch(data, at, end)
        self._missing = int(match[1], 16) if match else _MOST_CHUNK_BYTES
        if self._missing >= _MOST_CHUNK_BYTES:
            raise errors.broken_body()
        self._expects = self._data if self._missing else self._trailers
        return end + len(_LINE_END)

    def _data(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        piece = data[at : at + self._missing]
        pieces.append(piece)
        self._missing -= len(piece)
        if not self._missing:
            self._expects = self._end_of_data
        return at + len(piece)

    def _end_of_data(self, data: bytes, at: int, _: list[bytes]) -> int | None:
        found = data[at : at + len(_LINE_END)]
        if not _LINE_END.startswith(found):
            raise errors.broken_body()
        if found != _LINE_END:
            return None
        self._expects = self._size
        return at + len(_LINE_END)

    def _trailers(self, data: bytes, at: int, _: list[bytes]) -> int | None:
        """Read to find where they end. They mean nothing here."""
        if data.startswith(_LINE_END, at):
            self.has_ended = True
            return at + len(_LINE_END)
        end = data.find(_LINE_END * 2, at, at + _MOST_LINE_BYTES)
        if end < 0:
            _check_length(data, at)
            return None
        read_fields(data[at : end + len(_LINE_END)], "trailer")
        self.has_ended = True
        return end + 2 * len(_LINE_END)


def _check_length(data: bytes, at: int) -> None:
    if len(data) - at >= _MOST_LINE_BYTES:
        raise errors.broken_body()
