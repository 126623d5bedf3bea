"""One request and its answer, spoken as ASGI with the application."""

import asyncio
from typing import Protocol

from starlette.types import Message, Scope

from quarterdeck.core.errors import ServiceError
from quarterdeck.wire.answer import CONTINUE, LAST_CHUNK, Framing, answer_head, framed
from quarterdeck.wire.framing import Chunked, Sized
from quarterdeck.wire.head import Head

# Under these names the application finds in a request's scope why it was refused, its body if all of it came with the
# head, and how to end its connection.
REFUSAL = "quarterdeck.refusal"
BODY = "quarterdeck.body"
HANG_UP = "quarterdeck.hang_up"
# A body waits in memory for its reader up to here.
_MOST_UNREAD_BYTES = 256 * 1024
_TOO_SLOW = 408
_NOTHING_LEFT: Message = {"type": "http.disconnect"}


class Line(Protocol):
    """The connection, as far as an exchange needs it."""

    client: tuple[str, int] | None
    server: tuple[str, int] | None
    is_stopping: bool

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def hang_up(self) -> None: ...


class Exchange:
    def __init__(self, line: Line, head: Head, refusal: ServiceError | None = None) -> None:
        self._line = line
        self._head = head
        self._refusal = refusal
        self._framing: Sized | Chunked = Chunked() if head.length is None else Sized(head.length)
        self._expects_continue = head.expects_continue
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_end_told = False
        self._start: Message | None = None
        self._answer_framing = Framing.PLAIN
        # What is still to come of an answer whose length was announced and that comes in pieces.
        self._owed_bytes: int | None = None
        self.is_last = head.is_last
        self.is_answered = False
        # No more of the body will come: the client has left, or nobody knows where it ends.
        self.is_cut_off = False
        # Nobody reads the rest of the body.
        self.is_over = False
        self.is_lingering_due = True

    @property
    def has_body_ended(self) -> bool:
        return self._framing.has_ended

    @property
    def scope(self) -> Scope:
        head = self._head
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.0" if head.is_1_0 else "1.1",
            "method": head.method,
            "scheme": "http",
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": self._line.client,
            "server": self._line.server,
            HANG_UP: self._line.hang_up,
        }
        if self.has_body_ended and len(self._pieces) == 1:
            scope[BODY] = self._pieces[0]
        if self._refusal is not None:
            scope[REFUSAL] = self._refusal
        return scope

    def feed(self, data: bytes) -> bytes:
        """Takes what belongs to the body, and returns what follows it."""
        try:
            piece, rest = self._framing.feed(data)
        except ServiceError:
            self.cut_off()
            return b""
        if piece and not self.is_over:
            self._pieces.append(piece)
            self._unread_bytes += len(piece)
            if self._unread_bytes > _MOST_UNREAD_BYTES:
                self._line.pause()
        self._wake()
        return rest

    def cut_off(self, *, is_last: bool = True) -> None:
        self.is_cut_off = True
        self.is_last = self.is_last or is_last or not self.has_body_ended
        self._wake()

    def give_up_body(self) -> None:
        """Of what is left of it only the end counts."""
        self.is_over = True
        self._pieces.clear()

    @property
    def _is_end_due(self) -> bool:
        return self.has_body_ended and not self._is_end_told

    async def receive(self) -> Message:
        while not (self._pieces or self.is_cut_off or self._is_end_due):
            if self._expects_continue and not self.has_body_ended:
                self._expects_continue = False
                self._line.write(CONTINUE)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._pieces:
            pieces, self._pieces, self._unread_bytes = self._pieces, [], 0
            self._line.resume()
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        elif self._is_end_due:
            body = b""
        else:
            return _NOTHING_LEFT
        self._is_end_told = self.has_body_ended
        return {"type": "http.request", "body": body, "more_body": not self._is_end_told}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        piece, is_end = message.get("body", b""), not message.get("more_body", False)
        head = b"" if self._start is None else self._begin(self._start, len(piece) if is_end else None)
        data = head + framed(piece, self._answer_framing)
        if self._owed_bytes is not None:
            self._owed_bytes -= len(piece)
        if is_end:
            # With less or more than was announced the next answer would begin elsewhere for the client.
            self.is_answered = not self._owed_bytes
            if self._answer_framing is Framing.CHUNKED:
                data += LAST_CHUNK
        self._line.write(data)
        if not is_end:
            await self._line.drained()

    def _begin(self, start: Message, whole_bytes: int | None) -> bytes:
        self._start = None
        status, headers = start["status"], start["headers"]
        # Who asked whether to send the body was not told to, and may send it all the same or not.
        is_unsure = self._expects_continue and not self.has_body_ended
        # In the middle of an answer it would be part of that.
        self._expects_continue = False
        self.is_last = self.is_last or is_unsure or self._line.is_stopping or (b"connection", b"close") in headers
        # Who was given up on for being slow is not waited for.
        self.is_lingering_due = status != _TOO_SLOW
        head, self._answer_framing = answer_head(self._head, status, headers, whole_bytes, is_last=self.is_last)
        self.is_last = self.is_last or self._answer_framing is Framing.UNTIL_CLOSED
        if whole_bytes is None and self._answer_framing is Framing.PLAIN:
            self._owed_bytes = int(dict(headers)[b"content-length"])
        return head

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
