"""The client and the commands for users work without the server's dependencies. Servers start without those that only
some of their work needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment

SERVER_PACKAGES = ("psycopg", "psycopg_pool", "pydantic_ai", "starlette", "obstore", "granian")
# Some take as long to import as the rest of a process.
SLOW_PACKAGES = ("joserfc", "jsonschema", "mcp", "opentelemetry.sdk", "pydantic_ai", "pydantic_core")
BLOCKED = f"""
import sys
for name in {SERVER_PACKAGES}:
    sys.modules[name] = None
"""
QD = (
    BLOCKED
    + """
from quarterdeck.__main__ import main
main()
"""
)


def run(program: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment() | variables, capture_output=True, text=True, timeout=60)


def test_the_client_can_be_imported() -> None:
    done = run(BLOCKED + "from quarterdeck.client import AsyncClient, Client; print(Client.__name__)")
    assert (done.returncode, done.stdout) == (0, "Client\n"), done.stderr


def test_help_and_lint(tmp_path: Path) -> None:
    done = run(QD, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "whoami" in done.stdout
    (tmp_path / "SKILL.md").write_text("---\nname: demo\ndescription: Says hello.\n---\nSay ahoy.\n")
    done = run(QD, "skills", "lint", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ": OK: 1 file" in done.stdout


@pytest.mark.long
def test_a_command_reaches_for_the_server() -> None:
    done = run(QD, "whoami", QD_URL="http://127.0.0.1:9", QD_KEY="qd_live_x")
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith("qd: Cannot connect (http://127.0.0.1:9)")


@pytest.mark.parametrize("command", [["migrate"], ["admin", "list-workspaces"]], ids=" ".join)
def test_a_server_command_names_the_extra(tmp_path: Path, command: list[str]) -> None:
    done = run(QD, *command, "--data", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "qd: This command needs the server: pip install 'quarterdeck[server]'\n",
    )


@pytest.mark.long
def test_processes_start_without_slow_packages() -> None:
    # Workers send webhooks with httpcore2.
    slow = {"quarterdeck.cli.serve": (*SLOW_PACKAGES, "httpcore2"), "quarterdeck.worker.process": SLOW_PACKAGES}
    for process, packages in slow.items():
        done = run(f"import {process}, sys; print([name for name in {packages} if name in sys.modules])")
        assert (done.returncode, done.stdout) == (0, "[]\n"), (process, done.stderr)
