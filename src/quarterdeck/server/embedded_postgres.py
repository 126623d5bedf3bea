"""The embedded PostgreSQL for its users: claim the data directory, get the address, release the claim.

A claim is a shared file lock, which the kernel releases when its process ends, however it ends. A guard process beside
the server waits for the exclusive lock. Once it has that, no process uses the server and none can start to, and the
guard stops the server. So the order in which users start, end or are killed does not matter: no user loses the server,
and no server is left behind.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from quarterdeck.server.data_directory import (
    FAST_SHUTDOWN_SECONDS,
    Cluster,
    EmbeddedError,
    find_postmaster,
    open_file,
)
from quarterdeck.server.postgres_passwords import make_password

__all__ = ["EmbeddedError", "PostgresClaim", "app_password", "app_url", "error_of", "exists", "running", "start_guard"]

POLL_SECONDS = 0.05
# Enough to replay the WAL after a crash on a slow disk. A server that fails is noticed earlier: its guard ends.
START_SECONDS = 300.0

# Guards that outlive this process's claim because another process needs the server. Popen warns if a running process
# is garbage-collected, so they are kept.
_left_running: list[subprocess.Popen[str]] = []


@contextmanager
def running(data_dir: Path, max_connections: int | None = None) -> Iterator[str]:
    """The address of the server. Starts it if necessary, and stops it afterwards unless another process uses it."""
    claim = PostgresClaim(data_dir, max_connections)
    try:
        claim.wait_until_ready()
        yield claim.url
    finally:
        claim.release()


def exists(data_dir: Path) -> bool:
    """Whether the folder has a database."""
    return (Cluster(data_dir.resolve()).pgdata / "PG_VERSION").exists()


def app_password(data_dir: Path) -> str:
    """The password of the role of API and workers. Every migration stores it with the role."""
    return make_password(Cluster(data_dir.resolve()).app_password)


def app_url(data_dir: Path, role: str) -> str:
    """The address for API and workers: without the owner's password."""
    cluster = Cluster(data_dir.resolve())
    return make_conninfo(cluster.url, user=role, passfile=str(cluster.app_password))


def start_guard(data_dir: Path, max_connections: int | None = None) -> subprocess.Popen[str]:
    """`max_connections`: at least so many, if this guard starts the server."""
    # A new session: Ctrl-C in the terminal must reach the command only, which needs the server until it has ended.
    # -P: nothing is imported from the current folder, which may not be trusted.
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "quarterdeck.server.postgres_guard"),
            *(str(data_dir.resolve()), str(max_connections or 0)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class PostgresClaim:
    """One user of the server. Taken before the server is searched for, released after its last use."""

    def __init__(self, data_dir: Path, max_connections: int | None = None) -> None:
        self.cluster = Cluster(data_dir.resolve())
        self._max_connections = max_connections
        # The guard that this process started, if any. It serves, or stands by behind another guard.
        self.guard: subprocess.Popen[str] | None = None
        try:
            self.cluster.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = open_file(self.cluster.users_lock, os.O_RDWR)
        except OSError as fault:
            raise EmbeddedError(f"the data directory {data_dir} is not writable: {fault.strerror}") from fault
        # Blocks while a guard is stopping the server, for seconds at most.
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @property
    def url(self) -> str:
        return self.cluster.url

    def wait_until_ready(self) -> None:
        """Return when the server accepts connections. Starts a guard whenever there is none."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.guard is not None and self.guard.poll() is not None:
                reason, code = error_of(self.guard), self.guard.returncode
                if code != 0:
                    raise EmbeddedError(reason or f"the guard of PostgreSQL ended with code {code}")
                self.guard = None
            if self.guard is None and not self._is_guarded():
                self.guard = start_guard(self.cluster.data_dir, self._max_connections)
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL does not answer. Its log: {self.cluster.log}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        server = find_postmaster(self.cluster)
        # A server without its guard may accept connections, but the next guard will stop it.
        if server is None or not self._is_guarded() or self.cluster.guard_lock.read_text() != str(server.pid):
            return False
        return self._answers()

    def _is_guarded(self) -> bool:
        with open_file(self.cluster.guard_lock, os.O_RDWR) as lock:
            return not _try_lock(lock, fcntl.LOCK_EX)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def release(self, hurried: Callable[[], bool] = lambda: False) -> None:
        """Release the claim. The last user also waits for the server to stop, unless `hurried` returns true: the guard
        stops it in any case."""
        with self._lock:
            last = _try_lock(self._lock, fcntl.LOCK_EX)
            # A failed attempt releases the shared lock. If it cannot be taken again, the guard is stopping the server.
            if last or not _try_lock(self._lock, fcntl.LOCK_SH):
                self._wait_until_stopped(last, hurried)
        if self.guard is None:
            return
        if self.guard.poll() is None:
            self._dismiss_idle(self.guard)
        if self.guard.returncode is None:
            _left_running.append(self.guard)
        if self.guard.stderr is not None:
            self.guard.stderr.close()

    def _wait_until_stopped(self, last: bool, hurried: Callable[[], bool]) -> None:
        told = None
        deadline = time.monotonic() + FAST_SHUTDOWN_SECONDS + 15
        while self._is_guarded() and time.monotonic() < deadline:
            if hurried():
                return
            server = find_postmaster(self.cluster) if last else None
            if server is not None and server != told:
                # We hold the lock that the guard waits for, and no new user can come: this process stops the server.
                with suppress(psutil.NoSuchProcess):
                    server.send_signal(signal.SIGINT)
                told = server
            time.sleep(POLL_SECONDS / 5)
        if self.guard is not None and not self._is_guarded():
            self.guard.wait()

    def _dismiss_idle(self, guard: subprocess.Popen[str]) -> None:
        """End our guard if it only stands by behind another one."""
        server = find_postmaster(self.cluster)
        with suppress(psutil.NoSuchProcess):
            if server is not None and server.ppid() != guard.pid:
                guard.terminate()
                guard.wait()


def _try_lock(lock: BinaryIO, mode: int) -> bool:
    try:
        fcntl.flock(lock, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def error_of(guard: subprocess.Popen[str]) -> str:
    """The error message of an ended guard: one line, or empty."""
    assert guard.stderr is not None
    with guard.stderr:
        return guard.stderr.read().strip().rpartition("\n")[2]
