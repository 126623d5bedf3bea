"""One API server: a Granian master that forks `server.processes` workers around one listening socket."""

import gc
import importlib.util
import logging
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.mp import MPServer

from quarterdeck.processes import lifeline
from quarterdeck.processes.listener import BACKLOG, ListenError, address, inherited, listen
from quarterdeck.settings import Settings

logger = logging.getLogger(__name__)

# Of a request's line and headers. Every connection may hold as much in memory, and keep it for as long as a head may
# take; Granian's own 408 KiB would be 1.6 GiB for the connections that are let in.
HEAD_BYTES = 64 * 1024
# The master must be through with its workers before the supervisor loses patience with the master.
WORKER_SHARE_OF_SHUTDOWN = 0.9
# Descriptors of a worker besides its callers' connections: to the database, uploads, downloads, its own.
OTHER_DESCRIPTORS = 512
# Objects that make the collector look. Few of ours are garbage that only it can find; with Python's own 700 it took a
# quarter of the time of inputs, a sixth of that of 500 open streams, and stopped the process for tens of milliseconds.
GARBAGE_THRESHOLDS = (50_000, 20, 50)
_STDERR = {"formatter": "generic", "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}


def serve_api(settings: Settings, host: str, port: int, load: Callable[[], Any]) -> int:
    """Serve what `load` returns until SIGTERM or SIGINT; the exit code. `load` runs in each worker and, where
    workers are spawned and not forked (macOS, Python 3.14), must be picklable: a `partial` of a module's function.
    """
    try:
        listeners = inherited()
        if not listeners:
            listeners = listen(host, port, settings.server.processes)
            logger.info("listening on %s", address(*listeners[0].getsockname()[:2]))
    except ListenError as fault:
        sys.stderr.write(f"{fault}\n")
        return 2
    lifeline.watch()
    allow_descriptors(settings.http.connections + OTHER_DESCRIPTORS)
    server = _Server(listeners, settings)
    # Ends by SystemExit(1) when a worker dies twice within seconds; the supervisor starts the server again.
    server.serve(target_loader=partial(_load_in_worker, load), wrap_loader=False)
    return 0


def allow_descriptors(needed: int) -> None:
    """To this process and those it starts. Most systems begin with fewer than they would give."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed <= allowed or allowed == resource.RLIM_INFINITY:
        return
    # macOS may set no bound, and yet refuses to be asked for everything.
    wanted = needed if most == resource.RLIM_INFINITY else most
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        allowed = wanted
    if allowed < needed:
        logger.warning(
            "only %d files may be open at a time and %d may be needed: raise the limit (ulimit -Hn) or lower "
            "QUARTERDECK_HTTP_CONNECTIONS",
            allowed,
            needed,
        )


def _load_in_worker(load: Callable[[], Any]) -> Any:
    lifeline.watch()
    app = load()
    # What is loaded by now stays. The collector does not look through it again and again, and what it does not touch
    # stays shared with the master: a worker has 20 MB of its own instead of 32.
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    return app


class _Server(MPServer):
    def __init__(self, listeners: list[socket.socket], settings: Settings) -> None:
        self._listeners = listeners
        super().__init__(
            target="quarterdeck",
            interface=Interfaces.ASGI,
            workers=settings.server.processes,
            loop=Loops.uvloop if importlib.util.find_spec("uvloop") else Loops.asyncio,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=settings.http.connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=_milliseconds(settings.http.header_seconds), max_buffer_size=HEAD_BYTES
            ),
            log_level=LogLevels.warning,
            log_dictconfig={"handlers": {"console": _STDERR, "access": _STDERR}},
            log_access=False,
            respawn_failed_workers=True,
            workers_kill_timeout=max(1, int(settings.server.shutdown_seconds * WORKER_SHARE_OF_SHUTDOWN)),
        )

    # The three methods below put our sockets where Granian would make its own. They follow what it does on macOS,
    # where the master binds; on Linux each of its workers would bind anew. Its stubs do not tell of any of this.

    def _init_shared_socket(self) -> None:
        self._ssp = None
        for listener in self._listeners:
            listener.set_inheritable(True)

    def _spawn_worker(self, idx: int, target: Any, callback_loader: Any) -> Any:  # type: ignore[override]
        self._sso = self._listeners[idx % len(self._listeners)]
        self._shd = SocketHolder(self._sso.fileno(), False, BACKLOG)  # type: ignore[assignment, call-arg]
        return super()._spawn_worker(idx, target, callback_loader)

    def _drop_shared_socket(self) -> None:
        for listener in self._listeners:
            listener.close()


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
