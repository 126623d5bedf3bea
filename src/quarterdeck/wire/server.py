"""Accepting connections, looking after those that are open, and ending them in order."""

import asyncio
import logging
import socket
from contextlib import suppress

from starlette.types import ASGIApp

from quarterdeck.core.settings import HttpSettings
from quarterdeck.wire.connection import Connection
from quarterdeck.wire.lifespan import alive

logger = logging.getLogger(__name__)

# What a stopping server gives a client to send the rest of a head, or to read more of an answer.
PARTING_SECONDS = 1.0
_LOOKS = 4
# Before the next try when the system gives no more descriptors.
_ACCEPT_PAUSE_SECONDS = 0.5


async def serve(app: ASGIApp, listener: socket.socket, settings: HttpSettings, stop: asyncio.Event) -> None:
    """Until `stop` is set and everything under way was answered."""
    async with alive(app):
        await _Server(app, listener, settings).run(stop)


class _Server:
    def __init__(self, app: ASGIApp, listener: socket.socket, settings: HttpSettings) -> None:
        self._app = app
        self._listener = listener
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        # Accepted, and not yet among the open ones.
        self._arriving: set[asyncio.Task[object]] = set()
        self._is_accepting = False
        self._is_stopping = False
        self._is_empty = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self._listener.setblocking(False)
        self._accept_on()
        looking = asyncio.create_task(self._look(self._settings.header_seconds, self._settings.unread_seconds))
        await stop.wait()
        looking.cancel()
        self._is_stopping = True
        self._accept_off()
        self._listener.close()
        parting = asyncio.create_task(self._look(PARTING_SECONDS, PARTING_SECONDS))
        for connection in self._open:
            connection.is_stopping = True
        self._note_end()
        await self._is_empty.wait()
        parting.cancel()

    async def _look(self, idle_seconds: float, unread_seconds: float) -> None:
        while True:
            await asyncio.sleep(min(idle_seconds, unread_seconds) / _LOOKS)
            now = self._loop.time()
            for connection in list(self._open):
                # One that has just ended cannot be looked at, and is no reason not to look at the others.
                with suppress(OSError):
                    connection.look(now, idle_seconds, unread_seconds)

    # Beyond as many as are allowed, others wait in the system's queue until there is room.

    def _accept_on(self) -> None:
        if not self._is_accepting and not self._is_stopping:
            self._is_accepting = True
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept_off(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        while len(self._open) + len(self._arriving) < self._settings.connections:
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                logger.warning("no connection can be taken: %s", fault)
                self._accept_off()
                self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._accept_on)
                return
            arriving = self._loop.create_task(self._take(accepted))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arrived)
        self._accept_off()

    async def _take(self, accepted: socket.socket) -> None:
        # It may have left already.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._make_connection, accepted)

    def _arrived(self, arriving: "asyncio.Task[object]") -> None:
        self._arriving.discard(arriving)
        self._note_end()

    def _make_connection(self) -> Connection:
        connection = Connection(self._app, self._settings, self._open, self._note_end)
        connection.is_stopping = self._is_stopping
        return connection

    def _note_end(self) -> None:
        self._accept_on()
        if self._is_stopping and not self._open and not self._arriving:
            self._is_empty.set()
