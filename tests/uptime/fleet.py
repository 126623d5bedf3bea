"""`qd` as it is run: several API and worker processes on one database, ended one by one and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
from msgspec import Struct

from tests.world import START_SECONDS, STOP_SECONDS, app_url, free_port


class Process:
    """One `qd` command, under the same name and port however often it is started."""

    module = "quarterdeck"

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self._arguments],
                env=self._environment,
                stdout=output,
                stderr=output,
                # Ctrl-C is for whoever measures: it stops these in its own order.
                start_new_session=True,
            )

    def signal(self, order: signal.Signals) -> None:
        """To it and to whatever it started, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, order)

    def stop(self) -> None:
        if self._process is None:
            return
        # One that a measurement left paused does not hear the order to end.
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def family(self) -> list[psutil.Process]:
        """The process and those that it started."""
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []


class Api(Struct, frozen=True):
    process: Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Fleet(Struct, frozen=True):
    apis: list[Api]
    workers: list[Process]

    def processes(self) -> list[Process]:
        return [*(api.process for api in self.apis), *self.workers]


@contextmanager
def sailing(database_url: str, folder: Path, *, apis: int, workers: int, **settings: object) -> Iterator[Fleet]:
    """`settings` are environment variables without their prefix. Logs are in the folder, one a process."""
    environment = environment_of(database_url, folder, **settings)
    ports = [free_port() for _ in range(apis)]
    fleet = Fleet(
        [
            Api(Process(f"api {at}", ["api", "--port", str(port)], environment, folder / f"api-{at}.log"), port)
            for at, port in enumerate(ports, 1)
        ],
        [Process(f"worker {at}", ["worker"], environment, folder / f"worker-{at}.log") for at in range(1, workers + 1)],
    )
    with ExitStack() as at_the_end:
        for process in fleet.processes():
            at_the_end.callback(process.stop)
            process.start()
        for api in fleet.apis:
            until_ready(api.url)
        yield fleet


def environment_of(database_url: str, folder: Path, **settings: object) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}
    environment |= {"QUARTERDECK_DATABASE_URL": app_url(database_url), "QUARTERDECK_SERVER_DATA_DIR": str(folder)}
    return environment | {f"QUARTERDECK_{name}": str(value) for name, value in settings.items()}


def until_ready(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=10).status_code == 200:
                return
        assert time.monotonic() < deadline, f"{url} is not ready"
        time.sleep(0.05)
