"""`qd serve`: runs the embedded PostgreSQL (unless a database URL is set), the API and the workers, and restarts them.

The supervisor only starts processes, waits and forwards signals. If it is killed, its children end by themselves
(`lifeline.py`, and the lock in `embedded_postgres.py`).
"""

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType

import msgspec

from quarterdeck.core.settings import Settings, variable
from quarterdeck.server import embedded_postgres, lifeline
from quarterdeck.server.address import AddressError, address_text, free_address
from quarterdeck.server.connections import embedded_max_connections
from quarterdeck.server.embedded_postgres import EmbeddedError
from quarterdeck.server.metrics_port import check_metrics_address, metrics_port

# One supervised process: started, watched, restarted with increasing delays, stopped.

# The first restart is quick because most crashes are single events. A crash that repeats must not use up the processor.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
# A process that ran this long had started: its end does not count as another failed start.
SETTLED_SECONDS = 10.0
FAILED_STARTS_TO_REPORT = 5


class Child:
    def __init__(
        self,
        name: str,
        spawn: Callable[[], subprocess.Popen[str]],
        read_error: Callable[[subprocess.Popen[str]], str] = lambda process: "",
    ) -> None:
        """`spawn` starts the process in a session of its own, so that Ctrl-C reaches only the supervisor. `read_error`
        returns the last output of an ended process, for the log."""
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        self._spawn = spawn
        self._read_error = read_error
        self._started = 0.0
        self._due = 0.0
        self._failed_starts = 0

    def start(self) -> None:
        self._started = time.monotonic()
        self.process = self._spawn()

    def tend(self) -> float | None:
        """Restart the process if it has ended and the delay is over. Returns the seconds until then; None: it runs."""
        if self.process is not None:
            if self.process.poll() is None:
                return None
            self._note_end(self.process)
            self.process = None
        wait_seconds = self._due - time.monotonic()
        if wait_seconds > 0:
            return wait_seconds
        self.start()
        return None

    def _note_end(self, process: subprocess.Popen[str]) -> None:
        now = time.monotonic()
        self._failed_starts = 1 if now - self._started > SETTLED_SECONDS else self._failed_starts + 1
        pause_seconds = min(FIRST_PAUSE_SECONDS * 2 ** (self._failed_starts - 1), LONGEST_PAUSE_SECONDS)
        self._due = now + pause_seconds
        logger.warning(
            "%s ended with code %s; it starts again in %.1f s. %s",
            self.name,
            process.returncode,
            pause_seconds,
            self._read_error(process),
        )
        if self._failed_starts == FAILED_STARTS_TO_REPORT:
            logger.error(
                "%s has ended %d times within %d s of its start and needs attention; trying on every %d s",
                self.name,
                self._failed_starts,
                SETTLED_SECONDS,
                LONGEST_PAUSE_SECONDS,
            )

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """Kill the process and everything in its process group."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


# Signal handling of the supervisor.


class Signals:
    """SIGTERM, SIGINT and SIGHUP. The first signal interrupts the start or begins the shutdown. The second ends the
    wait for children."""

    def __init__(self) -> None:
        self.received = 0
        self._starting = True
        self._wake_reader, self._wake_writer = socket.socketpair()

    @contextmanager
    def caught(self) -> Iterator[None]:
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        before = {
            order: signal.signal(order, self._on_order) for order in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        # Python writes to the wake-up socket only for signals that have a handler.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup_before = signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for order, handler in before.items():
                signal.signal(order, handler)
            self._wake_reader.close()
            self._wake_writer.close()

    def _on_order(self, order: int, frame: FrameType | None) -> None:
        self.received += 1
        if self._starting:
            self._starting = False
            raise KeyboardInterrupt

    def started(self) -> None:
        self._starting = False

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal, which includes the end of a child."""
        select.select([self._wake_reader], [], [], seconds)
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            return


logger = logging.getLogger(__name__)

# -P: the current folder is not on the import path.
API_COMMAND = (sys.executable, "-P", "-m", "quarterdeck", "api")
WORKER_COMMAND = (sys.executable, "-P", "-m", "quarterdeck", "worker")
_API_POLL_SECONDS = 0.05
EXIT_FAILED = 1
EXIT_ADDRESS = 2
EXIT_FORCED = 130


def supervise(
    settings: Settings,
    before_api: Callable[[str], str],
    *,
    announce: Callable[[str], None] = lambda address: None,
    api_command: Sequence[str] = API_COMMAND,
) -> int:
    """Run until a signal; the exit code. `before_api` gets the URL of the database's owner once the database answers
    and returns the URL for API and workers. `announce` gets the `host:port` of the API once that accepts connections.
    An exception of `before_api` is raised after everything was stopped."""
    signals = Signals()
    supervisor = _Supervisor(settings, signals)
    with signals.caught():
        try:
            # First: a second `qd serve` must fail before it touches anything.
            address = supervisor.choose_address()
            url = before_api(supervisor.start_database())
            supervisor.open_metrics_port(url)
            supervisor.start_api(url, api_command)
            supervisor.start_workers(url)
            supervisor.wait_for_api()
            announce(address_text(*address))
            signals.started()
            supervisor.watch()
        except KeyboardInterrupt:
            pass
        except (AddressError, EmbeddedError) as fault:
            sys.stderr.write(f"{fault}\n")
            return EXIT_ADDRESS if isinstance(fault, AddressError) else EXIT_FAILED
        finally:
            signals.started()
            supervisor.stop()
    return EXIT_FORCED if signals.received > 1 else 0


class _Supervisor:
    def __init__(self, settings: Settings, signals: Signals) -> None:
        self._settings = settings
        self._signals = signals
        self._address = (settings.server.host, settings.server.port)
        # Nobody writes to this pipe. Its readers see the end of file when this process ends.
        self._lifeline_reader, self._lifeline_writer = os.pipe()
        self._children: list[Child] = []
        self._api: Child | None = None
        self._claim: embedded_postgres.PostgresClaim | None = None
        self._postgres: Child | None = None
        self._metrics = ExitStack()

    def choose_address(self) -> tuple[str, int]:
        server = self._settings.server
        self._address = free_address(server.host, server.port)
        if server.health_port is not None:
            free_address(server.host, server.health_port)
        check_metrics_address(self._settings)
        return self._address

    def start_database(self) -> str:
        database = self._settings.database
        if database.session_url is not None:
            return database.owner_url or database.session_url
        data_dir, connections = self._settings.data_dir, embedded_max_connections(self._settings)
        self._claim = embedded_postgres.PostgresClaim(data_dir, connections)
        start_guard = partial(embedded_postgres.start_guard, data_dir, connections)
        self._postgres = Child("postgres", start_guard, embedded_postgres.error_of)
        self._claim.wait_until_ready()
        # None if another command has started PostgreSQL: `watch` then starts a second guard, which waits to take over.
        self._postgres.process = self._claim.guard
        return self._claim.url

    def open_metrics_port(self, url: str) -> None:
        self._metrics.enter_context(metrics_port(self._settings, url))

    def start_api(self, url: str, command: Sequence[str]) -> None:
        environment = {
            variable("database", "url"): url,
            variable("server", "data_dir"): str(self._settings.data_dir),
            variable("server", "port"): str(self._address[1]),
        }
        self._api = Child("api", partial(self._spawn, command, environment))
        self._start(self._api)

    def wait_for_api(self) -> None:
        """Return once the API accepts connections, or has ended: `watch` starts it again."""
        while self._api is not None and self._api.is_running():
            with suppress(OSError), socket.create_connection(self._address, timeout=1):
                return
            time.sleep(_API_POLL_SECONDS)

    def start_workers(self, url: str) -> None:
        environment = {
            variable("database", "url"): url,
            variable("server", "data_dir"): str(self._settings.data_dir),
        }
        for number in range(self._settings.worker.processes):
            self._start(Child(f"worker {number + 1}", partial(self._spawn, WORKER_COMMAND, environment)))

    def _start(self, child: Child) -> None:
        self._children.append(child)
        child.start()

    def _spawn(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            pass_fds=[self._lifeline_reader],
            env={
                **os.environ,
                **settings_environment(self._settings),
                **environment,
                # Children have the rights of the role only, not those of the owner.
                variable("database", "owner_url"): "",
                # The supervisor has the port.
                variable("metrics", "port"): "",
                lifeline.VARIABLE: str(self._lifeline_reader),
            },
        )

    def watch(self) -> None:
        watched = [*([self._postgres] if self._postgres else []), *self._children]
        while not self._signals.received:
            pauses = [child.tend() for child in watched]
            self._signals.wait(min((pause for pause in pauses if pause is not None), default=None))

    def stop(self) -> None:
        """Stop the processes that use the database first, the database last."""
        with ExitStack() as at_the_end:
            at_the_end.callback(os.close, self._lifeline_reader)
            at_the_end.callback(os.close, self._lifeline_writer)
            at_the_end.callback(self._metrics.close)
            self._stop_children()
            if self._claim is not None:
                if self._postgres is not None and self._postgres.process is not None:
                    self._claim.guard = self._postgres.process
                self._claim.release(hurried=self._hurried)

    def _stop_children(self) -> None:
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + self._settings.server.shutdown_seconds
        while any(child.is_running() for child in self._children):
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0 or self._hurried():
                break
            self._signals.wait(left_seconds)
        for child in self._children:
            if child.is_running():
                logger.warning("%s did not end in time and is killed", child.name)
                child.kill()

    def _hurried(self) -> bool:
        return self._signals.received > 1


def settings_environment(settings: Settings) -> dict[str, str]:
    """Environment variables for the settings that options of `qd serve` change. Children inherit all others."""
    server = msgspec.structs.asdict(settings.server)
    return {variable("server", field): str(value) for field, value in server.items() if value is not None}
