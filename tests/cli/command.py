"""Runs `qd` as a process or in this process, with its output and exit code."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import httpx
from msgspec import Struct

from quarterdeck.cli.main import run
from tests.world import free_port, is_listening

QD = (sys.executable, "-m", "quarterdeck")
# Far longer than needed, for a busy machine.
START_SECONDS = 60.0


def environment(**settings: str) -> dict[str, str]:
    """The environment without settings and logins of the developer."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("QUARTERDECK_", "QD_"))}
    return plain | {f"QUARTERDECK_{name}": value for name, value in settings.items()}


def qd(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return qd_in(environment(**settings), *arguments)


def qd_in(environ: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*QD, *arguments], env=environ, capture_output=True, text=True, timeout=START_SECONDS)


def qd_here(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return qd_here_in(environment(**settings), *arguments)


class _TerminalText(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def qd_here_in(
    environ: dict[str, str], *arguments: str, given: str = "", at_terminal: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Runs a command in this process, which saves the start of Python. Not for commands that handle signals."""
    raw = [io.BytesIO(given.encode()), io.BytesIO(), io.BytesIO()]
    wrap = _TerminalText if at_terminal else io.TextIOWrapper
    stdin, out = (wrap(stream, encoding="utf-8", write_through=True) for stream in raw[:2])
    err = io.TextIOWrapper(raw[2], encoding="utf-8", write_through=True)
    patches = patch.dict(os.environ, environ, clear=True), patch("sys.stdin", stdin)
    with patches[0], patches[1], redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    return subprocess.CompletedProcess(["qd", *arguments], code, *(stream.getvalue().decode() for stream in raw[1:]))


class Serving(Struct, frozen=True):
    process: "subprocess.Popen[str]"
    url: str
    output: Path

    def exported(self, name: str) -> str:
        """A variable that the first start has printed."""
        match = re.search(rf"export {name}=(\S+)", self.output.read_text())
        assert match, self.output.read_text()
        return match[1]


@contextmanager
def qd_serve(data: Path, output: Path, port: int | None = None, **settings: str) -> Iterator[Serving]:
    port = port or free_port()
    with output.open("w") as out:
        process = subprocess.Popen(
            [*QD, "serve", "--data", str(data), "--port", str(port)],
            env=environment(**settings),
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
    serving = Serving(process, f"http://127.0.0.1:{port}", output)
    try:
        _wait_until_ready(serving)
        yield serving
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def _wait_until_ready(serving: Serving) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert serving.process.poll() is None, serving.output.read_text()
        try:
            is_up = is_listening(httpx.URL(serving.url).port or 0)
            is_announced = "Serving on" in serving.output.read_text()
            if is_up and is_announced and httpx.get(f"{serving.url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not ready in time: {serving.output.read_text()}")
