"""The line that every request leaves in the log. It has the form of all other lines (`logs.py`) but not their way: at
thousands of requests a second the logging library would be a tenth of the work. Lines are made and written together, a
moment later."""

import asyncio
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from quarterdeck.core.logging import log
from quarterdeck.core.secrets import redact

_LOGGED_CHARACTERS = 200
_PIPE_BYTES = 4096
# Nobody reads a log this fast, and no caller waits for its line to be made and written.
_PAUSE_SECONDS = 0.02
# Those that need no look at what they may hide.
_METHODS = {"GET", "HEAD", "POST", "PATCH", "DELETE"}


class _Request(Struct, frozen=True, gc=False):
    ended: datetime
    request_id: str
    method: str
    path: str
    status: int
    seconds: float


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
        self._requests: list[_Request] = []

    def add(self, *, request_id: str, method: str, path: str, status: int, seconds: float) -> None:
        """Never the query or a header: people put secrets there. Others put them into the path."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._requests:
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self.write)
        self._requests.append(_Request(datetime.now(UTC), request_id, method, path, status, seconds))

    def write(self) -> None:
        """All that there are."""
        requests, self._requests = self._requests, []
        # A log that cannot be written is no reason not to serve.
        with suppress(OSError, ValueError):
            for piece in _pieces(map(_encoded, requests)):
                sys.stderr.write(piece.decode())
                sys.stderr.flush()


def _encoded(request: _Request) -> bytes:
    line = _Line(
        time=request.ended,
        level="info",
        message="request",
        request_id=request.request_id,
        method=request.method if request.method in _METHODS else _shown(request.method),
        path=_shown(request.path),
        status=request.status,
        ms=round(request.seconds * 1000, 2),
    )
    return msgspec.json.encode(line)


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
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
