"""The processes of a system: started, killed without notice, started again."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

# What a program needs to be a program. All else that is set here stays here: it may be a setting of what is measured.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER")


class Command(Struct, frozen=True):
    name: str
    arguments: Sequence[str | Path]
    environment: Mapping[str, str]


class Processes:
    def __init__(self, folder: Path, commands: Sequence[Command]) -> None:
        self._folder = folder
        self._commands = commands
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        for command in self._commands:
            with self._log(command.name).open("ab") as log:
                self._running[command.name] = subprocess.Popen(
                    list(map(str, command.arguments)),
                    cwd=self._folder,
                    env={**inherited, **command.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # A group of its own: what it starts dies with it.
                    start_new_session=True,
                )

    def kill(self) -> None:
        for process in self._running.values():
            os.killpg(process.pid, signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    def check(self) -> None:
        """Raises what the first process that has ended said last."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with code {process.returncode}: {self._last_words(name)}")

    def last_words(self) -> str:
        return "; ".join(f"{name}: {self._last_words(name)}" for name in self._running)

    def _last_words(self, name: str) -> str:
        return " ".join(self._log(name).read_text(errors="replace").split())[-300:]

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
