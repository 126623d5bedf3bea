"""Where the systems are installed: a folder each, which git ignores, made once for each list of versions."""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.peers.system import Environment

HERE = Path(__file__).parent
FOLDER = HERE / ".environments"
LISTS = HERE / "requirements"
_STAMP = "installed"


class NotInstalled(Exception):
    """With the reason, for the report."""


def version_of(environment: Environment) -> str:
    """The pinned one of the package that is compared."""
    form = rf'^{re.escape(environment.package)}==(\S+)|"{re.escape(environment.package)}": "(\S+)"'
    found = re.search(form, _pins(environment) + _npm_pins(environment), re.MULTILINE)
    assert found, f"{environment.package} is not pinned"
    return found[1] or found[2]


async def install(environment: Environment) -> Path:
    """The folder, anew when a pin has changed."""
    folder = FOLDER / environment.name
    stamp = folder / _STAMP
    wanted = hashlib.sha256((_pins(environment) + _npm_pins(environment)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    await _run(_python(environment.python), "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    await _run(*pip, "--requirement", LISTS / f"{environment.name}.txt")
    if pins := _npm_pins(environment):
        await _install_npm(folder, pins)
    stamp.write_text(wanted)
    return folder


async def _install_npm(folder: Path, pins: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("needs npm, and there is none here")
    (folder / "package.json").write_text(pins)
    # Scripts of packages run nothing here that is needed.
    await _run(npm, "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def _pins(environment: Environment) -> str:
    return (LISTS / f"{environment.name}.txt").read_text()


def _npm_pins(environment: Environment) -> str:
    file = LISTS / f"{environment.name}.npm.json"
    return file.read_text() if file.exists() else ""


def _python(least: tuple[int, int]) -> str:
    for program in _pythons():
        code = f"import sys; sys.exit(sys.version_info < {least})"
        # pyenv has a program for each version that somebody has installed, and most refuse to work.
        if subprocess.run([program, "-c", code], capture_output=True, check=False).returncode == 0:
            return program
    raise NotInstalled(f"needs Python {least[0]}.{least[1]} or newer, and none was found")


def _pythons() -> Iterator[str]:
    yield sys.executable
    yield from filter(None, (shutil.which(f"python3.{minor}") for minor in (12, 13, 14)))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob("versions/3.*/bin/python3")))


async def _run(*arguments: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        words = " ".join(output.decode(errors="replace").split())
        raise NotInstalled(f"{Path(arguments[0]).name} failed with code {process.returncode}: {words[-300:]}")
