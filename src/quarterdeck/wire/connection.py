"""One connection: bytes become requests, one after the other, and each has its answer before the next is begun."""

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from starlette.types import ASGIApp

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import HttpSettings
from quarterdeck.wire.exchange import Exchange
from quarterdeck.wire.head import MOST_BYTES, Head, read_head, split_head
from quarterdeck.wire.lingering import Lingering

logger = logging.getLogger(__name__)

# Of Linux's `struct tcp_info`: `tcpi_bytes_acked`.
_ARRIVED = struct.Struct("=120x Q")
_NO_HEAD = Head("", "", b"", b"", [], is_1_0=False, length=0, is_last=True, expects_continue=False)


class Connection(asyncio.Protocol):
    def __init__(
        self, app: ASGIApp, settings: HttpSettings, open_ones: "set[Connection]", ended: Callable[[], None]
    ) -> None:
        """`ended` is called when there is one open connection less: closed, and nothing is done for it any more."""
        self._app = app
        self._settings = settings
        self._open_ones = open_ones
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        # Held here, since a task that nobody holds may be thrown away before it ends.
        self._task: asyncio.Task[None] | None = None
        # What came and is not taken yet, and how much of it was looked through for the end of a head.
        self._buffer = b""
        self._seen = 0
        # Since when nothing happens on it that counts: a request, or the reading of an answer.
        self._since = self._loop.time()
        self._arrived: int | None = None
        self._is_reading = True
        self._is_lost = False
        # The client has ended its sending side.
        self._has_heard_all = False
        # It carries no request any more, and what still comes is thrown away.
        self._is_parting = False
        # While what comes is thrown away.
        self._lingering: Lingering | None = None
        # While the client has yet to read what it was sent.
        self._full: asyncio.Future[None] | None = None
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.is_stopping = False

    # --- what the event loop tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.client, self.server = (_address(transport.get_extra_info(name)) for name in ("peername", "sockname"))
        self._open_ones.add(self)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if self._lingering is not None:
            self._lingering.note_progress()
        if self._is_parting:
            return
        if exchange is None:
            if not self._buffer:
                self._since = self._loop.time()
            self._buffer += data
            self._begin()
        elif exchange.has_body_ended or exchange.is_cut_off:
            self._buffer += data
        else:
            self._buffer = exchange.feed(data)
            if exchange.is_over:
                self._go_on_behind(exchange)
        if len(self._buffer) > MOST_BYTES:
            self.pause()

    def eof_received(self) -> bool:
        """Nothing more will be asked. What was asked is still answered."""
        self._has_heard_all = True
        exchange = self._exchange
        if self._is_parting or (exchange is not None and exchange.is_over):
            return False
        if exchange is None:
            # Behind answers that are yet to be read, requests may wait.
            return self._full is not None and self._buffer != b""
        exchange.cut_off(is_last=not self._buffer)
        return True

    def connection_lost(self, fault: Exception | None) -> None:
        self._is_lost = True
        self._end_lingering()
        if self._exchange is not None:
            self._exchange.cut_off()
        self.resume_writing()
        if self._task is None:
            self._leave()

    def _leave(self) -> None:
        self._open_ones.discard(self)
        self._ended()

    def pause_writing(self) -> None:
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
        if self._exchange is None and self._buffer:
            self._begin()

    # --- what an exchange needs ---

    def write(self, data: bytes) -> None:
        if not self._is_lost:
            self._transport.write(data)

    async def drained(self) -> None:
        if self._full is not None:
            await asyncio.shield(self._full)

    def pause(self) -> None:
        if self._is_reading and not self._is_lost:
            self._is_reading = False
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._is_reading and not self._is_lost:
            self._is_reading = True
            self._transport.resume_reading()

    def hang_up(self) -> None:
        self._transport.abort()

    # --- from one request to the next ---

    def _begin(self) -> None:
        if self._full is not None or self._is_lost or self._is_parting:
            return
        try:
            found = split_head(self._buffer, self._seen)
            if found is None:
                self._wait_for_head()
                return
            text, rest = found
            exchange = Exchange(self, read_head(text))
        except ServiceError as refusal:
            exchange, rest = Exchange(self, _NO_HEAD, refusal), b""
            exchange.cut_off()
        self._seen = 0
        self._exchange = exchange
        self._buffer = rest
        if len(rest) <= MOST_BYTES or not exchange.has_body_ended:
            self.resume()
        if rest and not exchange.has_body_ended:
            self._buffer = exchange.feed(rest)
        if self._has_heard_all:
            exchange.cut_off(is_last=not self._buffer)
        self._task = self._loop.create_task(self._carry_out(exchange))

    def _wait_for_head(self) -> None:
        self._seen = len(self._buffer)
        if self._has_heard_all:
            self._part(linger=False)
        else:
            self.resume()

    async def _carry_out(self, exchange: Exchange) -> None:
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Exception as fault:
            logger.error("an answer was broken off", exc_info=fault)
        finally:
            self._task = self._exchange = None
            if self._is_lost:
                self._leave()
            else:
                self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        may_send_more = (exchange.is_cut_off or not exchange.has_body_ended) and not self._has_heard_all
        if not exchange.is_answered:
            self._transport.abort()
        elif exchange.is_last:
            self._part(linger=may_send_more and exchange.is_lingering_due)
        elif exchange.has_body_ended:
            self._go_on()
        else:
            self._exchange = exchange
            exchange.give_up_body()
            self._linger()

    def _go_on(self) -> None:
        self._since, self._arrived = self._loop.time(), None
        if self._buffer:
            self._begin()
        else:
            self.resume()

    def _part(self, *, linger: bool) -> None:
        """A connection that is closed while its client sends is reset, and the answer lost with it. So it is told that
        nothing more will come, and what it sends meanwhile is thrown away, for a bounded time."""
        self._is_parting = True
        self._buffer = b""
        self._since, self._arrived = self._loop.time(), None
        if linger:
            # Without uvloop, a client that has gone meanwhile is noticed here first.
            with suppress(OSError):
                self._transport.write_eof()
            self._linger()
        else:
            self._transport.close()

    def _linger(self) -> None:
        self.resume()
        self._lingering = Lingering(self._settings, self._give_up_lingering)

    def _give_up_lingering(self) -> None:
        self._exchange = None
        self._part(linger=False)

    def _go_on_behind(self, exchange: Exchange) -> None:
        """Once the body that nobody read has come to its end."""
        if not (exchange.is_cut_off or exchange.has_body_ended):
            return
        self._exchange = None
        self._end_lingering()
        if exchange.is_cut_off:
            self._part(linger=True)
        else:
            self._go_on()

    def _end_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.end()
            self._lingering = None

    # --- how long one may do nothing ---

    def look(self, now: float, idle_seconds: float, unread_seconds: float) -> None:
        """Ends it when nothing was asked for so long, or nothing read of an answer. While it carries a request, that
        has times of its own."""
        if self._exchange is not None:
            return
        if self._transport.get_write_buffer_size():
            arrived = self._count_arrived()
            if arrived != self._arrived:
                self._arrived, self._since = arrived, now
            elif now - self._since >= unread_seconds:
                self._transport.abort()
        elif not self._is_parting and now - self._since >= idle_seconds:
            self._transport.close()

    def _count_arrived(self) -> int:
        """What the other end has taken. Elsewhere than on Linux only what has left this process tells of it."""
        if sys.platform != "linux":
            return -self._transport.get_write_buffer_size()
        connection = self._transport.get_extra_info("socket")
        raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ARRIVED.size)
        arrived: int
        # What only looks like Linux tells less of it.
        (arrived,) = _ARRIVED.unpack(raw.ljust(_ARRIVED.size, b"\0"))
        return arrived


def _address(value: Any) -> tuple[str, int] | None:
    """IPv6 has more parts."""
    return (value[0], value[1]) if value else None
