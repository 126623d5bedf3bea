"""Server-Sent Events as a response.

A stream ends when its source ends, when the client disconnects, or when the client does not read for `send_seconds`.
`send` blocks while the client does not read, which bounds memory. A server does not report a disconnect on `send`, so
`receive` is watched as well. The application only stops sending; whether the connection is closed is up to the server.
"""

import asyncio
from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.http.disconnect import client_left

EVENT_STREAM = "text/event-stream"
# X-Accel-Buffering: nginx passes the stream on without buffering it.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_PIECE_BYTES = 64 * 1024
# Time to send the rest to a client that reads, once the source has ended.
_FINAL_SECONDS = 0.2


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(client_left(receive))
        ending = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({sending, leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not leaving.done():
                await asyncio.wait({sending}, timeout=_FINAL_SECONDS)
        finally:
            for task in (sending, leaving, ending):
                task.cancel()
            outcome, *_ = await asyncio.gather(sending, leaving, ending, return_exceptions=True)
            await self._chunks.aclose()
        if isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError):
            raise outcome

    async def _send_all(self, send: Send) -> None:
        async for chunk in self._chunks:
            for start in range(0, len(chunk), _PIECE_BYTES):
                await self._send(send, chunk[start : start + _PIECE_BYTES], more=True)
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, piece: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._send_seconds):
            await send({"type": "http.response.body", "body": piece, "more_body": more})
