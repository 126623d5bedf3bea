"""A PostgreSQL server to share, stop, kill and pause, and a line to it that loses answers."""

import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from quarterdeck.server.data_directory import (
    SOCKET_NAME,
    Cluster,
    clean_environment,
    clear_leftovers,
    identity,
    prepare,
    server_command,
)
from quarterdeck.server.postgres_guard import stop_with_parent
from quarterdeck.server.postgres_passwords import require_passwords
from tests.world import migrate_for_tests

# Only a fault takes this long.
START_SECONDS = 60.0
# The kernel stops PostgreSQL when the thread that started it ends. A thread of `asyncio.to_thread` ends with its test.
_STARTER = ThreadPoolExecutor(1)


class Postgres:
    """Started without the guard that would bring it back."""

    def __init__(self, folder: Path, **options: object) -> None:
        """`options` are parameters of PostgreSQL."""
        self.cluster = Cluster(folder.resolve())
        self._options = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._account = prepare(self.cluster)
        require_passwords(self.cluster, self._account)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        clear_leftovers(self.cluster)
        with self.cluster.log.open("ab") as log:
            self._process = _STARTER.submit(self._started, log).result()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            time.sleep(0.02)
        raise AssertionError(self.cluster.log.read_text()[-2000:])

    def _started(self, log: BinaryIO) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*server_command(self.cluster), *self._options],
            stdout=log,
            stderr=log,
            cwd="/",
            env=clean_environment(),
            start_new_session=True,
            preexec_fn=stop_with_parent(),
            **identity(self._account),
        )

    def stop(self, order: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends connections and writes everything out; SIGQUIT is a crash with recovery at the next start."""
        if self._process is not None:
            self._process.send_signal(order)
            self._process.wait(START_SECONDS)
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Every process of it stands still: connections stay open and nothing is answered."""
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        # The parent first: it must not start a process that is missed.
        parent.suspend()
        processes = [parent, *parent.children(recursive=True)]
        for process in processes[1:]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in reversed(processes):
                with suppress(psutil.NoSuchProcess):
                    process.resume()


@contextmanager
def own_postgres(name: str) -> Iterator[Postgres]:
    """Migrated, in a folder of its own, for as long as it is needed."""
    with running_postgres(name) as postgres:
        migrate_for_tests(postgres.url)
        yield postgres


@contextmanager
def running_postgres(name: str, **options: object) -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix=f"qd-{name}-") as folder:
        postgres = Postgres(Path(folder), **options)
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()


class LossyLine:
    """A socket before PostgreSQL's own. Told to, it cuts the connection whose request holds a certain text: before
    the request gets through, or after PostgreSQL has answered and before the answer gets back."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._target = str(cluster.socket_dir / SOCKET_NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET_NAME))
        self._listener.listen(64)
        self.url = make_conninfo(cluster.url, host=str(folder))
        self._lock = threading.Lock()
        self._loss: tuple[bytes, bool] | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, text: bytes, *, after_it_is_done: bool) -> None:
        """Once."""
        with self._lock:
            self._loss = (text, after_it_is_done)

    @property
    def has_lost(self) -> bool:
        with self._lock:
            return self._loss is None

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._target)
                except OSError:
                    client.close()
                    continue
                doomed = threading.Event()
                threading.Thread(target=self._forward, args=(client, server, doomed), daemon=True).start()
                threading.Thread(target=self._return, args=(client, server, doomed), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                with self._lock:
                    lost = self._loss if self._loss is not None and self._loss[0] in data else None
                    self._loss = self._loss if lost is None else None
                if lost is not None:
                    doomed.set()
                    if not lost[1]:
                        break
                server.sendall(data)
        if not doomed.is_set():
            _end(server)
        elif client.fileno() != -1:
            _end(server, client)

    def _return(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if doomed.is_set():
                    break
                client.sendall(data)
        _end(client, server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
