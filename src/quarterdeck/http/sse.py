"""An answer without an end. It takes three to end it: the reader leaves, what is read ends, or the reader is too slow.

`send` waits while a reader does not read, which bounds the memory, but it waits for ever; to a reader that has left it
sends without a complaint. So every piece has its time, and leaving is watched for.
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.http.disconnect import hang_up, left

EVENT_STREAM = "text/event-stream"
# A proxy that gathers an answer before it passes it on would gather this one for ever.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_PIECE_BYTES = 64 * 1024
# For the last words to a reader that does read.
_PARTING_SECONDS = 0.2


class EventStream(Response):
    media_type = EVENT_STREAM

    def __init__(self, chunks: AsyncGenerator[bytes, None], ended: asyncio.Event, send_seconds: float) -> None:
        """`chunks` stops by itself when `ended` is set, unless its last piece is still being sent."""
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._chunks = chunks
        self._ended = ended
        self._send_seconds = send_seconds
        # When the piece that is being sent was begun.
        self._began: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(left(receive))
        others = [asyncio.create_task(one) for one in (self._ended.wait(), self._stuck())]
        try:
            await asyncio.wait({sending, leaving, *others}, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                await asyncio.wait({sending}, timeout=_PARTING_SECONDS)
        finally:
            has_left = leaving.done()
            for task in (sending, leaving, *others):
                task.cancel()
            outcome, *_ = await asyncio.gather(sending, leaving, *others, return_exceptions=True)
            await self._chunks.aclose()
        if has_left or outcome is None:
            return
        # Otherwise the connection would stay until its reader reads, and a stopping server would wait for it.
        hang_up(scope)
        if isinstance(outcome, Exception):
            raise outcome

    async def _send_all(self, send: Send) -> None:
        async for chunk in self._chunks:
            for start in range(0, len(chunk), _PIECE_BYTES):
                await self._send(send, chunk[start : start + _PIECE_BYTES], more=True)
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, piece: bytes, *, more: bool) -> None:
        self._began = time.monotonic()
        await send({"type": "http.response.body", "body": piece, "more_body": more})
        self._began = None

    async def _stuck(self) -> None:
        """Returns once a piece has been on its way for too long. It looks when that of the moment would be, so that
        pieces need no timers: those took as long as the sending."""
        while True:
            seconds = 0.0 if self._began is None else time.monotonic() - self._began
            if seconds >= self._send_seconds:
                return
            await asyncio.sleep(self._send_seconds - seconds)
