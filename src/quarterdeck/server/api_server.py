"""One API server: Granian with `server.processes` workers."""

import gc
import importlib.util
import logging
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from starlette.types import ASGIApp

from quarterdeck.core.settings import Settings
from quarterdeck.server import lifeline
from quarterdeck.server.address import AddressError, free_address
from quarterdeck.server.metrics_port import check_metrics_address, metrics_port
from quarterdeck.server.workers import Server

logger = logging.getLogger(__name__)

BACKLOG = 4096
# Limit for the request line and headers together. Each connection may hold this much memory for `header_seconds`;
# Granian's default of 408 KiB would allow 1.6 GiB for 4,096 connections.
HEAD_BYTES = 64 * 1024
# Granian must have stopped its workers before the supervisor kills Granian.
WORKER_SHARE_OF_SHUTDOWN = 0.9
# Open files of a worker besides client connections: database connections, uploads, downloads, its own.
OTHER_DESCRIPTORS = 512
# Allocations before the garbage collector runs. Requests leave few cycles behind; with Python's default of 700 the
# collector takes a quarter of the time of an input and pauses open streams for tens of milliseconds.
GARBAGE_THRESHOLDS = (50_000, 20, 50)
_STDERR = {"formatter": "generic", "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}


def serve_api(settings: Settings, host: str, port: int, load: Callable[[], ASGIApp]) -> int:
    """Serve the app that `load` returns until SIGTERM or SIGINT; the exit code. `load` runs in each worker. Where
    workers are spawned and not forked (macOS, Python 3.14) it must be picklable: a `partial` of a module's function.

    A worker that dies is started again. If it dies twice within seconds, Granian ends with code 1.
    """
    try:
        address, port = free_address(host, port)
        if settings.server.health_port is not None:
            free_address(host, settings.server.health_port)
        check_metrics_address(settings)
    except AddressError as fault:
        sys.stderr.write(f"{fault}\n")
        return 2
    lifeline.watch()
    raise_descriptor_limit(settings.http.connections + OTHER_DESCRIPTORS)
    with metrics_port(settings, settings.database.url or ""):
        _granian(settings, address, port).serve(target_loader=partial(_load_in_worker, load), wrap_loader=False)
    return 0


def raise_descriptor_limit(needed: int) -> None:
    """For this process and its children. The soft limit is usually far below the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    # macOS may report no hard limit and still refuse an infinite soft limit.
    wanted = needed if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft < needed:
        logger.warning(
            "only %d files may be open at a time and %d may be needed: raise the limit (ulimit -Hn) or lower "
            "QUARTERDECK_HTTP_CONNECTIONS",
            soft,
            needed,
        )


def _granian(settings: Settings, address: str, port: int) -> Server:
    return Server(
        target="quarterdeck",
        address=address,
        port=port,
        interface=Interfaces.ASGI,
        workers=settings.server.processes,
        loop=Loops.uvloop if importlib.util.find_spec("uvloop") else Loops.asyncio,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.http.connections,
        http1_settings=HTTP1Settings(
            header_read_timeout=max(1, int(settings.http.header_seconds * 1000)), max_buffer_size=HEAD_BYTES
        ),
        log_level=LogLevels.warning,
        log_dictconfig={"handlers": {"console": _STDERR, "access": _STDERR}},
        log_access=False,
        respawn_failed_workers=True,
        workers_kill_timeout=max(1, int(settings.server.shutdown_seconds * WORKER_SHARE_OF_SHUTDOWN)),
    )


def _load_in_worker(load: Callable[[], ASGIApp]) -> ASGIApp:
    # A forked worker inherits the handlers of its parent. Until Granian installs the worker's own, a SIGTERM must end
    # the process and not be lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # A closed terminal signals all processes; the parent decides what its workers do.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lifeline.watch()
    app = load()
    # Objects that exist now stay for good. The collector need not search them again and again.
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    return app
