"""One `qd` process of a fleet: started, stopped, killed, paused, drained, and started again under the same name."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.fleet.clock import Clock
from tests.world import START_SECONDS, STOP_SECONDS, UNLIMITED, app_url, free_port

# Read by `launch.py` in the started process.
CLOCK_VARIABLE = "FLEET_CLOCK"
BUG_VARIABLE = "FLEET_BUG"


def environment_for(database_url: str, data_dir: Path, **settings: object) -> dict[str, str]:
    """`settings` are environment variables without their prefix."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}
    environment |= {"QUARTERDECK_DATABASE_URL": app_url(database_url), "QUARTERDECK_SERVER_DATA_DIR": str(data_dir)}
    environment |= UNLIMITED
    return environment | {f"QUARTERDECK_{name}": str(value) for name, value in settings.items()}


class Process:
    def __init__(
        self, name: str, arguments: list[str], environment: dict[str, str], folder: Path, prefix: Sequence[str] = ()
    ) -> None:
        """`prefix`: a command that starts the process elsewhere, for example in a network namespace. It must replace
        itself with the process."""
        self.name = name
        self.log = folder / f"{name}.log"
        self.clock = Clock(folder / f"{name}.clock")
        self._command = [*prefix, sys.executable, "-m", "tests.fleet.launch", *arguments]
        self._environment = environment | {CLOCK_VARIABLE: str(self.clock.path)}
        self._process: subprocess.Popen[bytes] | None = None
        self._restarting = asyncio.Lock()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=output,
                stderr=output,
                # Ctrl-C must reach only the command that started the fleet: it stops the processes in its own order.
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def kill_and_restart(self) -> None:
        async with self._restarting:
            self.kill()
            self.start()

    async def drain_and_restart(self) -> None:
        """Send SIGTERM, as an upgrade does, and start the process again once it has ended.

        Raises `subprocess.TimeoutExpired` if it does not end in time; it is killed and restarted even then.
        """
        async with self._restarting:
            assert self._process is not None
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            try:
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
            finally:
                self.kill()
                self.start()

    def family(self) -> list[psutil.Process]:
        """The process and its descendants."""
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []


class ApiProcess(Process):
    """`qd api`, or `qd serve`, which also starts workers."""

    def __init__(
        self,
        name: str,
        command: str,
        environment: dict[str, str],
        folder: Path,
        prefix: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.host = host
        self.port = free_port()
        address = {"QUARTERDECK_SERVER_HOST": host, "QUARTERDECK_SERVER_PORT": str(self.port)}
        super().__init__(name, [command], environment | address, folder, prefix)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as http:
            while True:
                with suppress(httpx.TransportError):
                    if (await http.get("/readyz")).status_code == 200:
                        return
                assert time.monotonic() < deadline, f"{self.name} did not start: {self.log.read_text()[-2000:]}"
                await asyncio.sleep(0.05)
