"""Health checks: /healthz says that the process runs, /readyz that it can serve requests."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from types import FrameType

from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck.api.endpoint import Respond
from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Database
from quarterdeck.db.migrate import is_current
from quarterdeck.http.responses import error_response, json_response

_OK = b'{"status":"ok"}'


async def healthz(_: Scope, __: Receive) -> Response:
    return json_response(_OK, 200)


def readyz(database: Database) -> Respond:
    async def respond(_: Scope, __: Receive) -> Response:
        if not await database.read(is_current):
            raise errors.unavailable("The database schema is outdated. Run `qd migrate`.")
        return json_response(_OK, 200)

    return respond


# A listener for health checks only, on a port of its own.
#
# Granian accepts no connection while all are in use, whatever they are used for. A health check on the port of the API
# then waits behind a flood of idle connections, and a healthy process would be restarted. This listener has connections
# of its own. It runs in the event loop of the API, so a process that hangs does not answer here either.

# Many more than a balancer needs. Connections above this number are closed at once.
_CONNECTIONS = 64
_HEAD_BYTES = 8 * 1024
# For one check from the first byte to the last. Longer than the database may take.
_CHECK_SECONDS = 10.0


class HealthListener:
    def __init__(self, checks: Mapping[str, Respond]) -> None:
        """`checks` are GET operations by path."""
        self._checks = checks
        self._open = 0

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[None]:
        # All processes of a server listen on the port, like on that of the API.
        server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_BYTES, reuse_port=True)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS:
                with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    async with asyncio.timeout(_CHECK_SECONDS):
                        head = await reader.readuntil(b"\r\n\r\n")
                        writer.write(await self._answer(head))
                        await writer.drain()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0]
        response = await self._response(method, path)
        lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
        lines += [b"%b: %b" % header for header in response.raw_headers]
        lines += [b"connection: close", b"", b"" if method == "HEAD" else bytes(response.body)]
        return b"\r\n".join(lines)

    async def _response(self, method: str, path: str) -> Response:
        check = self._checks.get(path)
        if check is None or method not in ("GET", "HEAD"):
            return error_response(errors.not_found("path"))
        try:
            return await check({}, _nothing)
        except ServiceError as fault:
            return error_response(fault)


async def _nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}


# Learning of a shutdown early. A server waits for open responses before it ends the lifespan, and an event stream has
# no end of its own: it must be ended by the signal itself.

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_shutdown_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Calls `callback` in the running loop when SIGTERM or SIGINT arrives. The server's own handling is unaffected:
    a handler that it set is called too, and event loops are woken by Python's wake-up descriptor in any case."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)
        # As event loops set it: system calls of other threads are not interrupted.
        signal.siginterrupt(number, False)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, earlier)
