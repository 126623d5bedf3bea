"""Granian's workers, replaced and stopped without losing a request.

This process keeps the listening sockets: connections in a queue outlive the worker that would have accepted them. A
worker that is being replaced first drains: it accepts nothing more, and closes each connection after a response that
says so. Then it is stopped, which closes the connections on which no request came meanwhile.

Granian has no public interface for this. `tests/contract/test_rolling_restart.py` fails if an overridden method is
renamed or no longer called.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from granian.net import SocketSpec  # type: ignore[attr-defined]
from granian.server import MPServer
from granian.server.mp import WorkerProcess
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Long enough for the next request of most clients that reuse their connection.
DRAIN_SECONDS = 2.0
_DRAIN = signal.SIGUSR1


class Server(MPServer):
    def _init_shared_socket(self) -> None:
        spec = SocketSpec(self.bind_addr, self.bind_port, self.backlog)
        # Linux distributes connections among the sockets of a port. Elsewhere the workers share one socket.
        number = self.workers if sys.platform == "linux" else 1
        holders = [spec.build() for _ in range(number)]
        self._listeners = [(holder, socket.socket(fileno=holder.get_fd())) for holder in holders]

    def _drop_shared_socket(self) -> None:
        for _, listener in self._listeners:
            listener.close()

    def _spawn_worker(self, idx: int, target: Any, callback_loader: Any) -> WorkerProcess:  # type: ignore[override]
        self._shd, self._sso = self._listeners[idx % len(self._listeners)]  # type: ignore[assignment]
        others = [listener.fileno() for _, listener in self._listeners if listener is not self._sso]
        # A spawned process inherits only its own socket.
        is_forked = multiprocessing.get_start_method() == "fork"
        assert self.workers_kill_timeout is not None, "as set in api_server.py"
        drain_seconds = min(DRAIN_SECONDS, self.workers_kill_timeout / 2)
        load = partial(_load, callback_loader, drain_seconds, self._sso.fileno(), others if is_forked else [])
        worker = super()._spawn_worker(idx, target, load)
        worker.__class__ = Worker
        return worker

    def _respawn_workers(self, workers: Sequence[int], *arguments: Any, **options: Any) -> None:
        for idx in workers:
            worker = self.wrks[idx]
            assert isinstance(worker, Worker)
            worker.is_replaced = True
        super()._respawn_workers(workers, *arguments, **options)


class Worker(WorkerProcess):
    is_replaced = False

    def terminate(self) -> None:
        if not self.is_replaced:
            super().terminate()  # type: ignore[no-untyped-call]
            return
        self.interrupt_by_parent = True
        if self.is_alive():
            # A process that has not begun to accept has no handler yet and ends at once.
            with suppress(ProcessLookupError):
                os.kill(self.inner.pid, _DRAIN)

    def is_alive(self) -> bool:
        """Not `inner.is_alive`, which is true for a moment after the thread of Granian that waits for the process has
        reaped it. Granian would report that it has to kill the worker."""
        return not wait([self.inner.sentinel], timeout=0)


def _load(load: Callable[[], ASGIApp], drain_seconds: float, listener: int, others: Sequence[int]) -> ASGIApp:
    """In the worker."""
    for descriptor in others:
        os.close(descriptor)
    return Draining(load(), drain_seconds, listener)


class Draining:
    def __init__(self, app: ASGIApp, drain_seconds: float, listener: int) -> None:
        self._app = app
        self._drain_seconds = drain_seconds
        self._listener = listener
        self._is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            asyncio.get_running_loop().add_signal_handler(_DRAIN, self._begin)
        elif self._is_draining:
            send = partial(_send_and_close, send)
        await self._app(scope, receive, send)

    def _begin(self) -> None:
        self._is_draining = True
        # Granian cannot stop accepting without closing connections. It goes on with a socket that no client knows.
        with socket.create_server(("127.0.0.1", 0)) as unused:
            unused.setblocking(False)
            os.dup2(unused.fileno(), self._listener, inheritable=False)
        asyncio.get_running_loop().call_later(self._drain_seconds, os.kill, os.getpid(), signal.SIGTERM)


async def _send_and_close(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
    await send(message)
