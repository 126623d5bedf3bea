"""`qd serve` in small as a process of its own, for several test files."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import httpx
import psutil
import psycopg
import pytest

from tests.fault.test_embedded import PATIENCE_SECONDS, USER, eventually, folder, processes_of

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]


class Served:
    """`qd serve` in small, in a process group of its own as a shell would start it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        # A port that a test names must be bound again at once, so it is not drawn from the ephemeral ones.
        environment = {"QUARTERDECK_SERVER_PORT": "0", "QUARTERDECK_SERVER_DATA_DIR": str(folder), **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.served", "serve"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.errors: list[str] = []
        self._said: Queue[str] = Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._said.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: object, keep: Callable[[str], None]) -> None:
        for line in stream:  # type: ignore[attr-defined]
            keep(line.rstrip("\n"))

    def said(self, word: str) -> str:
        first, _, rest = self._said.get(timeout=PATIENCE_SECONDS).partition(" ")
        assert first == word
        return rest

    def up(self) -> "Served":
        self.url = self.said("DATABASE")
        host, _, port = self.said("ADDRESS").rpartition(":")
        self.address = (host, int(port))
        self.worker()
        return self

    def get(self, path: str) -> str:
        """As clients do, it tries again while the API is being restarted."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return httpx.get(f"http://{self.address[0]}:{self.address[1]}{path}", timeout=PATIENCE_SECONDS).text
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def worker(self) -> psutil.Process:
        return psutil.Process(int(self.get("/")))

    def api(self) -> psutil.Process:
        parent = self.worker().parent()
        assert parent is not None
        return parent

    def refuses(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(self.address) != 0

    def end(self, timeout: float = PATIENCE_SECONDS) -> int:
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return code

    def signal(self, order: signal.Signals) -> None:
        self.process.send_signal(order)


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(**variables: str) -> Served:
        started.append(Served(folder, **variables))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [process for process in psutil.process_iter() if serves(process, folder)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for process in left:
        process.kill()
    for one in started:
        one.end()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()
    eventually(lambda: not processes_of(folder))
    assert left == []


def serves(process: psutil.Process, folder: Path) -> bool:
    """One of ours, told by its environment: another run of these tests may be under way."""
    try:
        if "tests.fault.served" not in process.cmdline() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get("QUARTERDECK_SERVER_DATA_DIR") == str(folder)
    except psutil.Error:
        return False


def start_user(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def select_one(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False
