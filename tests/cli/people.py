"""A user at a shell, with a config folder, an environment and optionally a terminal."""

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.cli.command import QD, environment, qd_here_in
from tests.world import Server, World

WAIT_SECONDS = 60


class Person(Struct, frozen=True):
    home: Path
    # In addition to the plain environment.
    variables: dict[str, str] = {}

    @property
    def environ(self) -> dict[str, str]:
        plain = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "TERM": "xterm", "COLUMNS": "120"}
        return plain | own | self.variables

    @property
    def profiles(self) -> Path:
        return self.home / "config" / "quarterdeck" / "profiles.json"

    def qd(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*QD, *arguments],
            env=self.environ,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )

    def done(self, *arguments: str, given: str = "") -> str:
        """The output of a command that succeeds."""
        ended = self.qd(*arguments, given=given)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.done(*arguments, "--json"))

    def refused(self, *arguments: str, given: str = "") -> tuple[int, str]:
        """The exit code and the error line of a command that fails."""
        ended = self.qd(*arguments, given=given)
        assert ended.returncode != 0, ended.stdout
        assert "Traceback" not in ended.stderr
        lines = ended.stderr.splitlines()
        assert len(lines) == 1, ended.stderr
        assert lines[0].startswith("qd: ")
        return ended.returncode, lines[0].removeprefix("qd: ")

    def at_terminal(self, *arguments: str, answers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The exit code and everything that the terminal showed. `answers` maps prompts to replies."""
        controller, terminal = pty.openpty()
        try:
            process = subprocess.Popen(
                [*QD, *arguments],
                env=self.environ,
                cwd=self.home,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                # Detached from the terminal of the test run.
                start_new_session=True,
            )
            os.close(terminal)
            shown = _conversation(process, controller, dict(answers or {}))
            return process.wait(WAIT_SECONDS), shown
        finally:
            os.close(controller)


class Nearby(Person, frozen=True):
    """Runs commands in this process, except those at a terminal."""

    def qd(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        with chdir(self.home):
            return qd_here_in(self.environ, *arguments, given=given)


def _conversation(process: "subprocess.Popen[bytes]", controller: int, answers: dict[str, str]) -> str:
    shown = b""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if not select.select([controller], [], [], 0.1)[0]:
            if process.poll() is not None:
                return shown.decode()
            continue
        try:
            piece = os.read(controller, 65536)
        except OSError:
            # Linux reports a closed terminal this way.
            return shown.decode()
        shown += piece
        for question in [question for question in answers if question in shown.decode(errors="replace")]:
            os.write(controller, f"{answers.pop(question)}\n".encode())
    process.kill()
    raise AssertionError(f"it did not end: {shown.decode()}")


def person_of(home: Path, server: Server, world: World, key: str | None = None) -> Person:
    """A user whose environment names the server and the key."""
    return Person(home, {"QD_URL": server.url, "QD_KEY": key or world.key})


def nearby(home: Path, server: Server, world: World, key: str | None = None) -> Nearby:
    return Nearby(home, person_of(home, server, world, key).variables)
