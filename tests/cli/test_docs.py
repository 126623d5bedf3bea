"""docs/cli.md and the README's section on `qd`, run as they are written; and that the page has everything."""

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from quarterdeck.cli import connection
from quarterdeck.cli.exits import Exit
from quarterdeck.cli.main import app
from tests.cli.command import qd_serve
from tests.cli.people import Person

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
OPERATORS = {"serve", "api", "worker", "migrate", "sweep", "admin"}


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def run_all(blocks: list[str], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """By one shell, with `qd` on its path, against a server that was just started."""
    command = tmp_path / "bin" / "qd"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m quarterdeck "$@"\n')
    command.chmod(0o755)
    with qd_serve(tmp_path / "data", tmp_path / "output", MODEL_DEMO_PAUSE_SECONDS="0.01") as serving:
        person = Person(tmp_path, {name: serving.exported(name) for name in ("QD_URL", "QD_WORKSPACE", "QD_KEY")})
        return subprocess.run(
            ["sh", "-eu", "-c", "\n".join(blocks)],
            env=person.environ | {"PATH": f"{command.parent}:{person.environ['PATH']}"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = blocks_of(PAGE.read_text("utf-8"))
    assert len(blocks) == 10
    done = run_all(blocks, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "> Plan our release." in done.stdout
    assert "+Always say ahoy." in done.stdout
    assert "greeting: sessions use the latest version, now 2" in done.stdout
    assert "revoked qd_live_" in done.stdout
    assert (tmp_path / "greeting.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    profiles = Person(tmp_path).profiles
    assert stat.S_IMODE(profiles.stat().st_mode) == 0o600
    assert '"work"' not in profiles.read_text()


def test_the_readme_runs_too(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text("utf-8").split("## The same with `qd`")[1].split("\n## ")[0]
    done = run_all(blocks_of(section), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "> Plan our release." in done.stdout
    assert "pushed house-style version 1" in done.stdout


def test_the_page_has_every_command() -> None:
    page = PAGE.read_text("utf-8")
    missing = [words for words in commands() if not re.search(rf"`?qd {words}\b|`{words.split()[-1]}\b", page)]
    assert missing == []


def test_the_page_has_every_exit_code_and_variable() -> None:
    page = PAGE.read_text("utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == {0, *Exit}
    names = [getattr(connection, name) for name in ("URL", "KEY", "WORKSPACE", "PROFILE", "ALLOW_HTTP")]
    assert [name for name in names if f"`{name}" not in page] == []


def commands() -> Iterator[str]:
    """Those that people use, by the words that call them."""
    root = typer.main.get_command(app)
    for name, command in getattr(root, "commands", {}).items():
        if name in OPERATORS:
            continue
        below = getattr(command, "commands", None)
        yield from [name] if below is None else (f"{name} {inner}" for inner in below)
