"""Runs code blocks of the docs in a shell, in a folder like that of the project, with a server of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.cli.command import Serving, qd_serve
from tests.cli.people import Person

# Replaces curl on machines without it: the tests need only Python, pip and make.
_CURL = """#!{python}
import argparse, httpx, sys
parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("-s", action="store_true")
parser.add_argument("-H", action="append", default=[])
parser.add_argument("-d")
parser.add_argument("--data-binary")
given = parser.parse_args()
content = open(given.data_binary[1:], "rb").read() if given.data_binary else given.d
headers = dict(line.split(": ", 1) for line in given.H)
sys.stdout.write(httpx.request("GET" if content is None else "POST", given.url, content=content, headers=headers).text)
"""
_QD = '#!/bin/sh\nexec "{python}" -m quarterdeck "$@"\n'
# Between the outputs of two blocks.
SEPARATOR = "--- next block ---"
# Some pages run a dozen commands, and the machine may be busy.
WAIT_SECONDS = 300


class Shell(Struct, frozen=True):
    """`home` holds the server's data and `.venv/bin/qd`, as the folder of the project does after `make serve`."""

    home: Path
    serving: Serving

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the first start has printed."""
        return {name: self.serving.exported(name) for name in ("QD_URL", "QD_WORKSPACE", "QD_KEY")}

    def environ(self, *, qd_on_path: bool = True) -> dict[str, str]:
        folders = [str(self.home / ".venv" / "bin")] if qd_on_path else []
        path = os.pathsep.join([*folders, os.environ["PATH"], str(self.home / "bin")])
        return Person(self.home, self.variables).environ | {"PATH": path}

    def run(self, blocks: Sequence[str], *, qd_on_path: bool = True) -> list[str]:
        """The output of each block. Stops at the first command that fails."""
        done = subprocess.run(
            ["sh", "-eu", "-c", f"\necho; echo '{SEPARATOR}'\n".join(blocks)],
            env=self.environ(qd_on_path=qd_on_path),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [part.strip() for part in done.stdout.split(f"{SEPARATOR}\n")]


def install(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format(python=sys.executable))
    file.chmod(0o755)


def install_qd(home: Path) -> None:
    install(home / ".venv" / "bin" / "qd", _QD)


@contextmanager
def shell(home: Path, **settings: str) -> Iterator[Shell]:
    install_qd(home)
    if shutil.which("curl") is None:
        install(home / "bin" / "curl", _CURL)
    with qd_serve(home / "data", home / "output", None, **settings) as serving:
        yield Shell(home, serving)
