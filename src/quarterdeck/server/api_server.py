"""One API server: a master that forks `server.processes` workers around its sockets, and keeps them running."""

import asyncio
import gc
import importlib.util
import logging
import multiprocessing
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess

from starlette.types import ASGIApp

from quarterdeck.core.settings import Settings
from quarterdeck.server import lifeline
from quarterdeck.server.listener import ListenError, address, inherited, listen
from quarterdeck.server.signals import Signals
from quarterdeck.wire.server import serve

logger = logging.getLogger(__name__)

# The master must be through with its workers before the supervisor loses patience with the master.
WORKER_SHARE_OF_SHUTDOWN = 0.9
# Descriptors of a worker besides its callers' connections: to the database, uploads, downloads, its own.
OTHER_DESCRIPTORS = 512
# Objects that make the collector look. Few of ours are garbage that only it can find; with Python's own 700 it took a
# quarter of the time of inputs, a sixth of that of 500 open streams, and stopped the process for tens of milliseconds.
GARBAGE_THRESHOLDS = (50_000, 20, 50)
# A worker that ends this soon after its start did not come up.
_SETTLED_SECONDS = 5.0
_EXIT_FAILED = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def serve_api(settings: Settings, host: str, port: int, load: Callable[[], ASGIApp]) -> int:
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
    signals = Signals()
    signals.started()
    with signals.caught():
        return _Master(listeners, settings, load, signals).run()


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


class _Master:
    def __init__(
        self, listeners: list[socket.socket], settings: Settings, load: Callable[[], ASGIApp], signals: Signals
    ) -> None:
        self._listeners = listeners
        self._settings = settings
        self._load = load
        self._signals = signals
        self._workers: list[_Worker] = []

    def run(self) -> int:
        """Until a signal, or until a worker does not come up twice in a row: a supervisor tries again, with pauses."""
        self._workers = [self._start(number) for number in range(self._settings.server.processes)]
        try:
            while True:
                self._signals.wait(None)
                if self._signals.received:
                    return 0
                if not self._replace_ended():
                    return _EXIT_FAILED
        finally:
            self._stop()

    def _start(self, number: int, failed_starts: int = 0) -> "_Worker":
        listener = self._listeners[number % len(self._listeners)]
        return _Worker(number, _spawn(listener, self._settings, self._load), failed_starts)

    def _replace_ended(self) -> bool:
        for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
            failed_starts = worker.failed_starts + 1 if worker.age_seconds < _SETTLED_SECONDS else 0
            logger.warning("a worker ended with code %s", worker.process.exitcode)
            if failed_starts > 1:
                return False
            self._workers[worker.number] = self._start(worker.number, failed_starts)
        return True

    def _stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + self._settings.server.shutdown_seconds * WORKER_SHARE_OF_SHUTDOWN
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                logger.warning("a worker did not end in time and is killed")
                worker.process.kill()
                worker.process.join()


class _Worker:
    def __init__(self, number: int, process: BaseProcess, failed_starts: int) -> None:
        self.number = number
        self.process = process
        self.failed_starts = failed_starts
        self._started = time.monotonic()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._started


def _spawn(listener: socket.socket, settings: Settings, load: Callable[[], ASGIApp]) -> BaseProcess:
    process = multiprocessing.get_context().Process(target=_work, args=(listener, settings, load))
    # A signal that came before the worker has handlers of its own would be taken for the master's, and be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return process


def _work(listener: socket.socket, settings: Settings, load: Callable[[], ASGIApp]) -> None:
    # What a fork has from the master is the master's.
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # A terminal that is closed tells everybody; the master tells its workers what to do then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    lifeline.watch()
    app = load()
    # What is loaded by now stays. The collector does not look through it again and again, and what it does not touch
    # stays shared with the master: a worker has 20 MB of its own instead of 32.
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(_serve(app, listener, settings))


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


async def _serve(app: ASGIApp, listener: socket.socket, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(app, listener, settings.http, stop)
