"""Server-Sent Events as a response.

A stream ends when its source ends or when the client disconnects. `send` blocks while the client does not read. After
`send_seconds` the stream is given up: its memory is released, and it ends as soon as the client reads again. Until then
the connection is open, and so is the stream. A server does not report a disconnect on `send`, so `receive` is watched
as well.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# Noticing that a client has disconnected.


async def client_left(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


EVENT_STREAM = "text/event-stream"
# X-Accel-Buffering: nginx passes the stream on without buffering it.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_PIECE_BYTES = 64 * 1024
# Time to send the rest to a client that reads, once the source has ended.
_FINAL_SECONDS = 0.2


class EventStream(Response):
    media_type = EVENT_STREAM

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        ended: asyncio.Event,
        send_seconds: float,
        opened: AbstractContextManager[None],
    ) -> None:
        """`chunks` stops by itself when `ended` is set, unless its last piece is still being sent. `opened` is entered
        while the stream is open. If it raises, the error is the response."""
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._chunks = chunks
        self._ended = ended
        self._send_seconds = send_seconds
        self._opened = opened
        # The chunk that is being sent. Streams may share it, so it is not cut before a piece is needed.
        self._chunk = b""
        self._stalled = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._opened:
            await self._respond(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(client_left(receive))
        ending = asyncio.create_task(self._ended.wait())
        stalling = asyncio.create_task(self._stalled.wait())
        try:
            await asyncio.wait({sending, leaving, ending, stalling}, return_when=asyncio.FIRST_COMPLETED)
            if stalling.done():
                self._chunk = b""
                # The client may just have read the rest: then the next chunk is being made, and nothing is held.
                with suppress(RuntimeError):
                    await self._chunks.aclose()
                await asyncio.wait({sending, leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not leaving.done():
                await asyncio.wait({sending}, timeout=_FINAL_SECONDS)
        finally:
            tasks = (sending, leaving, ending, stalling)
            for task in tasks:
                task.cancel()
            outcome, *_ = await asyncio.gather(*tasks, return_exceptions=True)
            await self._chunks.aclose()
        if isinstance(outcome, Exception):
            raise outcome

    async def _send_all(self, send: Send) -> None:
        """When the stream is given up, the chunk is empty and no other follows: it ends after the current piece."""
        loop = asyncio.get_running_loop()
        async for chunk in self._chunks:
            self._chunk = chunk
            del chunk
            start = 0
            while piece := self._chunk[start : start + _PIECE_BYTES]:
                start += len(piece)
                timer = loop.call_later(self._send_seconds, self._stalled.set)
                try:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                finally:
                    timer.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
