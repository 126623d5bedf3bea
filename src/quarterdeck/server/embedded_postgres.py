"""The embedded PostgreSQL as its users see it: claim the folder, get an address, give the claim back.

A claim is a shared lock on a file, which the kernel drops with its process however that ends. A guard process
beside the server waits for the exclusive one: once it has it, nobody uses the server and nobody can begin to, and
it stops the server. So whoever starts first, ends first or is killed, no user loses the server and no server is
left behind.
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

from quarterdeck.server.data_directory import FAST_SHUTDOWN_SECONDS, Cluster, EmbeddedError, find_postmaster, open_file

__all__ = ["Claim", "EmbeddedError", "last_words", "running", "start_guard"]

POLL_SECONDS = 0.05
# Enough to replay the WAL of a crash from a slow disk. A server that fails is noticed by its guard's end.
START_SECONDS = 300.0

# Guards that outlive this process's claim because somebody else needs the server. Kept, since Popen complains
# about a process that is forgotten while it runs.
_left_running: list[subprocess.Popen[str]] = []


@contextmanager
def running(data_dir: Path) -> Iterator[str]:
    """The address of the folder's server, which is started if need be and stopped if nobody else uses it."""
    claim = Claim(data_dir)
    try:
        claim.wait_until_ready()
        yield claim.url
    finally:
        claim.release()


def start_guard(data_dir: Path) -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C in the terminal is for the command, which needs the server to end well.
    # -P: nothing is imported from the folder in which somebody happens to run a command, perhaps as root.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "quarterdeck.server.postgres_guard", str(data_dir.resolve())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Claim:
    """One user of the server. Taken before the server is looked for, given back after its last use."""

    def __init__(self, data_dir: Path) -> None:
        self.cluster = Cluster(data_dir.resolve())
        # The guard that we started, if we did. It may serve, or stand by behind somebody else's.
        self.guard: subprocess.Popen[str] | None = None
        try:
            self.cluster.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = open_file(self.cluster.users_lock, os.O_RDWR)
        except OSError as fault:
            raise EmbeddedError(f"the data directory {data_dir} is not writable: {fault.strerror}") from fault
        # Waits while a guard is stopping the server, seconds at most.
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @property
    def url(self) -> str:
        return self.cluster.url

    def wait_until_ready(self) -> None:
        """Return when the server answers; start a guard whenever there is none."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.guard is not None and self.guard.poll() is not None:
                reason, code = last_words(self.guard), self.guard.returncode
                if code != 0:
                    raise EmbeddedError(reason or f"the guard of PostgreSQL ended with code {code}")
                self.guard = None
            if self.guard is None and not self._is_guarded():
                self.guard = start_guard(self.cluster.data_dir)
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL does not answer. Its log: {self.cluster.log}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        server = find_postmaster(self.cluster)
        # A server without its guard may answer, but the next guard is about to stop it.
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
        """Give the claim back and, as its last user, see the server down. `hurried` cuts the waiting short:
        the guard does the same on its own."""
        with self._lock:
            last = _try_lock(self._lock, fcntl.LOCK_EX)
            # Trying gave the claim up. If it cannot be had again, the guard was quicker and is stopping it.
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
                # The guard waits for the lock that we hold, and nobody can come in: it is ours to stop.
                with suppress(psutil.NoSuchProcess):
                    server.send_signal(signal.SIGINT)
                told = server
            time.sleep(POLL_SECONDS / 5)
        if self.guard is not None and not self._is_guarded():
            self.guard.wait()

    def _dismiss_idle(self, guard: subprocess.Popen[str]) -> None:
        """End our guard if it only stands by behind the one that serves."""
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


def last_words(guard: subprocess.Popen[str]) -> str:
    """What an ended guard complained of: one line, or nothing."""
    assert guard.stderr is not None
    with guard.stderr:
        return guard.stderr.read().strip().rpartition("\n")[2]
