"""The line that every request leaves in the log. It has the form of all other lines (`logs.py`) but not their way: at
thousands of requests a second the logging library would be a tenth of the work. Lines of one turn of the event loop
are written together."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from quarterdeck.access.secrets import redact
from quarterdeck.logs import log

_LOGGED_CHARACTERS = 200
_PIPE_BYTES = 4096
# Those that need no look at what they may hide.
_METHODS = {"GET", "HEAD", "POST", "PATCH", "DELETE"}


class _Line(Struct, frozen=True):
    time: datetime
    level: str
    message: str
    request_id: str
    method: str
    path: str
    status: int
    ms: float


class RequestLog:
    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, *, request_id: str, method: str, path: str, status: int, seconds: float) -> None:
        """Never the query or a header: people put secrets there. Others put them into the path."""
        if not log.isEnabledFor(logging.INFO):
            return
        line = _Line(
            time=datetime.now(UTC),
            level="info",
            message="request",
            request_id=request_id,
            method=method if method in _METHODS else _shown(method),
            path=_shown(path),
            status=status,
            ms=round(seconds * 1000, 2),
        )
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        self._lines.append(msgspec.json.encode(line))

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        # A log that cannot be written is no reason not to serve.
        with suppress(OSError, ValueError):
            for piece in _pieces(lines):
                sys.stderr.write(piece.decode())
                sys.stderr.flush()


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    """As much as a pipe takes at once: of more than that the lines of two processes could get mixed."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) >= _PIPE_BYTES:
            yield piece
            piece = b""
        piece += line + b"\n"
    yield piece


def _shown(text: str) -> str:
    # Cut after redacting: half a secret would not be recognised.
    return redact(text)[:_LOGGED_CHARACTERS]
