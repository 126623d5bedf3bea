"""The parent process of the embedded PostgreSQL, which runs as long as any process uses the server.

Started as `python -m quarterdeck.server.postgres_guard DATA_DIR MAX_CONNECTIONS`. It creates the cluster if necessary,
starts the server and ends with it; the users start it again. `embedded_postgres.py` describes the locks. An error is
one line on stderr and exit code 1.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from quarterdeck.server import data_directory as files
from quarterdeck.server.data_directory import Account, Cluster, EmbeddedError
from quarterdeck.server.postgres_passwords import require_passwords

# Processes of a killed server keep its shared memory until they end, and a new server refuses to start until then.
MEMORY_IN_USE = "pre-existing shared memory block"
START_ATTEMPTS = 30
START_PAUSE_SECONDS = 0.5
LOG_BYTES = 16 * 1024 * 1024
LOG_CHECK_SECONDS = 60.0


class Guard:
    def __init__(self, cluster: Cluster, max_connections: int = 0) -> None:
        """`max_connections`: at least so many. The configuration may ask for more."""
        self._cluster = cluster
        self._max_connections = max_connections
        self._server: subprocess.Popen[bytes] | None = None
        self._unused = False

    def run(self) -> None:
        """Serve until no process uses the server. A second guard of the folder waits here to take over."""
        with (
            files.open_file(self._cluster.guard_lock, os.O_RDWR) as own_lock,
            files.open_file(self._cluster.users_lock, os.O_RDWR) as users_lock,
        ):
            fcntl.flock(own_lock, fcntl.LOCK_EX)
            own_lock.truncate(0)
            if not _in_use(users_lock.fileno()):
                return
            # A service manager signals every process of the service at once. The server must outlast its users, so the
            # guard ignores signals and waits for their claims to end. Not SIG_IGN: the server would inherit it.
            for order in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(order, lambda *_: None)
            account = files.prepare(self._cluster)
            require_passwords(self._cluster, account)
            for action in (lambda: self._stop_when_unused(users_lock.fileno()), self._rotate_log):
                threading.Thread(target=action, daemon=True).start()
            try:
                self._serve(account, own_lock)
            finally:
                if self._cluster.socket_dir != self._cluster.pgdata:
                    with suppress(OSError):
                        self._cluster.socket_dir.rmdir()

    def _serve(self, account: Account | None, own_lock: BinaryIO) -> None:
        connections = max(self._max_connections, files.configured_max_connections(self._cluster, account))
        for attempt in range(1, START_ATTEMPTS + 1):
            files.clear_leftovers(self._cluster)
            with files.open_file(self._cluster.log, os.O_WRONLY | os.O_APPEND) as log:
                log_start = log.seek(0, os.SEEK_END)
                self._server = subprocess.Popen(
                    files.server_command(self._cluster, connections),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=files.clean_environment(),
                    start_new_session=True,
                    preexec_fn=stop_with_parent(),
                    **files.identity(account),
                )
            # Identifies our server. One that outlived its guard, and was stopped above, has another pid.
            os.ftruncate(own_lock.fileno(), 0)
            os.pwrite(own_lock.fileno(), str(self._server.pid).encode(), 0)
            if self._unused:
                self._server.send_signal(signal.SIGINT)
            code = self._server.wait()
            if code == 0 or self._unused:
                return
            reason = _error_in_log(self._cluster.log, log_start)
            if MEMORY_IN_USE not in reason or attempt == START_ATTEMPTS:
                raise EmbeddedError(f"PostgreSQL ended with code {code}: {reason} (log: {self._cluster.log})")
            time.sleep(START_PAUSE_SECONDS)

    def _stop_when_unused(self, users_lock: int) -> None:
        fcntl.flock(users_lock, fcntl.LOCK_EX)
        self._unused = True
        for order in (signal.SIGINT, signal.SIGQUIT):
            if self._server is not None:
                self._server.send_signal(order)
            time.sleep(files.FAST_SHUTDOWN_SECONDS)

    def _rotate_log(self) -> None:
        """The server opened the file for appending, so it can be truncated while the server writes."""
        while True:
            with suppress(OSError):
                if self._cluster.log.stat().st_size > LOG_BYTES:
                    with files.open_file(self._cluster.log, os.O_RDWR) as log:
                        with files.open_file(self._cluster.log.with_suffix(".log.1"), os.O_WRONLY | os.O_TRUNC) as old:
                            shutil.copyfileobj(log, old)
                        log.truncate(0)
            time.sleep(LOG_CHECK_SECONDS)


def _in_use(users_lock: int) -> bool:
    """Whether a process holds a claim. False while a process holds the lock exclusively to stop the server."""
    try:
        fcntl.flock(users_lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        fcntl.flock(users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Linux has released our shared lock by now. Other systems may not, and then the guard would block itself.
        fcntl.flock(users_lock, fcntl.LOCK_UN)
        return True
    return False


def stop_with_parent() -> Callable[[], None] | None:
    """On Linux the kernel asks the server for a fast shutdown when the guard is killed. Elsewhere the next
    guard finds the orphan and stops it."""
    if sys.platform != "linux":
        return None
    set_death_signal, pr_set_pdeathsig = ctypes.CDLL(None).prctl, 1

    def ask() -> None:
        set_death_signal(pr_set_pdeathsig, int(signal.SIGINT))

    return ask


def _error_in_log(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read(64 * 1024).decode(errors="replace").splitlines()
    fatal = [line for line in lines if "FATAL" in line or "PANIC" in line] or lines[-1:]
    return fatal[-1].strip() if fatal else "no message"


def main() -> int:
    try:
        Guard(Cluster(Path(sys.argv[1])), int(sys.argv[2])).run()
    except EmbeddedError as fault:
        # The process that started the guard may be gone.
        with suppress(OSError):
            sys.stderr.write(f"{fault}\n")
            sys.stderr.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
