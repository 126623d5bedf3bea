"""The built wheel in an empty environment: client and command line work with the base dependencies only."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.pages import ROOT

pytestmark = pytest.mark.long

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SERVER_MODULES = ("psycopg", "pydantic_ai", "starlette", "granian", "redis")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT], check=True)
    (built,) = folder.glob("quarterdeck-*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel and its dependencies, in the locked versions."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    lock = tmp_path_factory.mktemp("constraints") / "lock.txt"
    # Constraints cannot have hashes where the wheel itself has none.
    lines = (ROOT / "requirements" / "runtime.lock").read_text("utf-8").splitlines()
    lock.write_text("\n".join(line.removesuffix("\\") for line in lines if "--hash" not in line))
    subprocess.run([*PIP, "--python", python, "install", "--quiet", "--no-compile", "-c", lock, wheel], check=True)
    return folder / "bin"


def run(*command: str | Path, **login: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=environment() | login, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_the_server_is_not_installed(bin_folder: Path) -> None:
    lookup = f"from importlib.util import find_spec; print([m for m in {SERVER_MODULES} if find_spec(m)])"
    assert run(bin_folder / "python", "-c", lookup).stdout == "[]\n"


def test_the_client_can_be_imported(bin_folder: Path) -> None:
    done = run(
        bin_folder / "python", "-c", "from quarterdeck.client import AsyncClient, Client; print(Client.__name__)"
    )
    assert (done.returncode, done.stdout) == (0, "Client\n"), done.stderr


def test_a_call_reaches_the_network(bin_folder: Path) -> None:
    done = run(bin_folder / "qd", "whoami", QD_URL="http://127.0.0.1:1", QD_KEY="qd_x")
    assert done.returncode == 6, done.stderr


@pytest.mark.parametrize("command", [[], ["sessions"], ["skills"], ["keys"], ["chat"]])
def test_help(bin_folder: Path, command: list[str]) -> None:
    done = run(bin_folder / "qd", *command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


def test_a_skill_is_linted(bin_folder: Path, tmp_path: Path) -> None:
    skill = tmp_path / "house-style"
    assert run(bin_folder / "qd", "skills", "init", skill).returncode == 0
    done = run(bin_folder / "qd", "skills", "lint", skill)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["serve", "worker", "migrate"])
def test_a_server_command_names_the_extra(bin_folder: Path, command: str, tmp_path: Path) -> None:
    done = run(bin_folder / "qd", command, "--data", tmp_path)
    assert done.returncode == 2
    assert "pip install 'quarterdeck[server]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_wheel_has_types_console_and_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"quarterdeck/py.typed", "quarterdeck/console/index.html", "quarterdeck/api_reference/index.html"} <= names
    licences = {name.partition(".dist-info/licenses/")[2] for name in names if ".dist-info/licenses/" in name}
    vendored = {f"licenses/{name}.txt" for name in ("dompurify", "highlight.js", "markdown-it", "swagger-ui")}
    assert licences == {"LICENSE", "NOTICE", *vendored}
    assert not any(name.startswith(("tests/", "bench/")) or "node_modules" in name for name in names)
