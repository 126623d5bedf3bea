"""Downloads: stored content, whole or one byte range, sent piece by piece so that memory stays bounded.

A download stops when the client disconnects or does not read for `send_seconds`. The body is then shorter than its
Content-Length, so the client can tell.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.http.request import Request
from quarterdeck.http.responses import error_response
from quarterdeck.http.sse import client_left

_WHOLE, _PART, _NOT_MODIFIED = 200, 206, 304
# Several ranges, other units and malformed values are ignored, as RFC 9110 allows: the response is the whole content.
_RANGE = re.compile(r"\s*bytes=(?:([0-9]{1,19})-([0-9]{1,19})?|-([0-9]{1,19}))\s*", re.IGNORECASE | re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 100
# Replaces `send_seconds` once the server is stopping.
_FINAL_SECONDS = 1.0


class DownloadContent(Struct, frozen=True):
    media_type: str
    sha256: str
    size: int
    # For the caller's disk: see `safe_name`.
    file_name: str
    # Reads from one offset up to another. The first piece is read before the response starts, so that an error at that
    # point is still answered with the envelope.
    pieces: Callable[[int, int], AsyncGenerator[bytes, None]]
    # The name with all its characters, for clients that can show it.
    full_name: str | None = None

    @property
    def disposition(self) -> str:
        """The content is untrusted: a browser must save it and not interpret it."""
        plain = f'attachment; filename="{self.file_name}"'
        if self.full_name is None or self.full_name == self.file_name:
            return plain
        return f"{plain}; filename*=UTF-8''{quote(self.full_name, safe='')}"


class Downloads:
    def __init__(self, send_seconds: float, shutdown: asyncio.Event) -> None:
        self._send_seconds = send_seconds
        self._shutdown = shutdown

    def stream(self, media_type: str, file_name: str, pieces: AsyncGenerator[bytes, None]) -> Response:
        """Content of unknown length. If it breaks off, its last chunk is missing, so the client can tell."""
        headers = {
            "Content-Type": media_type,
            "Content-Disposition": f'attachment; filename="{file_name}"',
            "Cache-Control": "no-store",
            "Vary": "Accept",
            "X-Content-Type-Options": "nosniff",
        }
        return Download(pieces, _WHOLE, headers, self._send_seconds, self._shutdown)

    def respond(self, request: Request, content: DownloadContent) -> Response:
        etag = f'"{content.sha256}"'
        headers = {
            "ETag": etag,
            # The content never changes, but permission to read it does.
            "Cache-Control": "private, no-cache",
        }
        if request.has(etag):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        asked = request.requested_range(etag)
        try:
            span = None if asked is None else byte_span(asked, content.size)
        except ServiceError as fault:
            return error_response(fault, {"Content-Range": f"bytes */{content.size}"})
        start, end = span or (0, content.size)
        headers |= {
            "Content-Type": content.media_type,
            "Content-Length": str(end - start),
            "Content-Disposition": content.disposition,
            "X-Content-Type-Options": "nosniff",
            "Accept-Ranges": "bytes",
        }
        if span is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
        pieces = content.pieces(start, end)
        return Download(pieces, _WHOLE if span is None else _PART, headers, self._send_seconds, self._shutdown)


def byte_span(text: str, size: int) -> tuple[int, int] | None:
    """The range of a Range header, end exclusive; None means the whole. Raises if the range starts behind the end."""
    match = _RANGE.fullmatch(text)
    if match is None or size == 0:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), size if last is None else min(int(last) + 1, size)
        if last is not None and int(last) < start:
            return None
    if start >= size:
        raise errors.unsatisfiable_range()
    return start, end


def safe_name(text: str) -> str:
    """A file name that is safe in a header and on every file system."""
    return _UNSAFE.sub("-", text).strip("-.")[:_NAME_CHARACTERS] or "download"


class Download(Response):
    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        status: int,
        headers: dict[str, str],
        send_seconds: float,
        shutdown: asyncio.Event,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._send_seconds = send_seconds
        self._shutdown = shutdown
        # The timeout of the piece that is being sent.
        self._timeout: asyncio.Timeout | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            wanted = scope["method"] != "HEAD"
            # Before the status is sent: if the store is unavailable the response is an error.
            first = await anext(self._pieces, b"") if wanted else b""
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if wanted:
                await self._send_all(first, receive, send)
            else:
                await send({"type": "http.response.body", "body": b""})

    async def _send_all(self, first: bytes, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_pieces(first, send))
        leaving = asyncio.create_task(client_left(receive))
        stopping = asyncio.create_task(self._shutdown.wait())
        try:
            await asyncio.wait({sending, leaving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._shorten_timeout()
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving, stopping):
                task.cancel()
            outcome, *_ = await asyncio.gather(sending, leaving, stopping, return_exceptions=True)
        if isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError):
            raise outcome

    def _shorten_timeout(self) -> None:
        self._send_seconds = min(self._send_seconds, _FINAL_SECONDS)
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._send_seconds)

    async def _send_pieces(self, first: bytes, send: Send) -> None:
        await self._send(send, first, more=True)
        async for piece in self._pieces:
            await self._send(send, piece, more=True)
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, piece: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._send_seconds) as self._timeout:
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            self._timeout = None
