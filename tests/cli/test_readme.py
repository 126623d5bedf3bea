"""The commands of the README and of the first steps, run as they are written."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.command import START_SECONDS, Serving, environment, qd_serve
from tests.cli.shell import Shell, install_qd, shell
from tests.pages import ROOT, all_blocks, blocks_of, texts_of
from tests.world import free_port

PREPARED = ("Makefile", "pyproject.toml", "requirements/runtime.lock")
# Replaces the `sleep 5` of the first steps: waits until the run has ended.
WAIT = """
import os, sys, time, httpx
headers = {"Authorization": "Bearer " + os.environ["QD_KEY"]}
url = os.environ["QD_URL"] + "/v1/sessions/" + sys.argv[1] + "/runs"
while any(run["finished_at"] is None for run in httpx.get(url, headers=headers, timeout=60).json()["items"]):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One server for the sections of the first steps, which do not depend on each other."""
    with shell(tmp_path_factory.mktemp("home")) as at:
        yield at


def worker_of(serving: Serving) -> psutil.Process:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for process in psutil.Process(serving.process.pid).children():
            if process.cmdline()[-1:] == ["worker"]:
                return process
    raise AssertionError("no worker was started")


def test_the_two_commands_come_first() -> None:
    assert [block.text for block in all_blocks("README.md")][:2] == ["make serve\n", "make test\n"]


@pytest.mark.long
def test_the_first_command_serves(tmp_path: Path) -> None:
    """In a folder with a prepared `.venv`."""
    for name in PREPARED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    install_qd(tmp_path)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".runtime").touch()
    (command,) = texts_of(blocks_of("README.md", "sh", ""))
    port = free_port()
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            ["sh", "-eu", "-c", command],
            env=environment(SERVER_PORT=str(port)),
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while "Serving on" not in (shown := (tmp_path / "output").read_text()):
            assert process.poll() is None, shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        assert (tmp_path / "data").is_dir()
    finally:
        # Like Ctrl-C at a terminal: to make and its children.
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)


@pytest.mark.long
def test_first_conversation(at: Shell) -> None:
    (shown,) = at.run(texts_of(blocks_of("README.md", "sh", "A first conversation")), qd_on_path=False)
    assert at.variables["QD_WORKSPACE"] in shown
    assert "> Plan our release." in shown


@pytest.mark.long
def test_the_same_over_http(at: Shell) -> None:
    blocks = texts_of(blocks_of("docs/use/first-steps.md", "sh", "Over HTTP"))
    (at.home / "wait.py").write_text(WAIT)
    blocks[0] = f'sleep() {{ "{sys.executable}" wait.py $SESSION; }}\n' + blocks[0]
    # The worker is suspended until the second input is sent.
    worker = worker_of(at.serving)
    worker.suspend()
    try:
        blocks[2] += f"kill -CONT {worker.pid}\n"
        session, first, second, log, keys, version = at.run(blocks, qd_on_path=False)
    finally:
        worker.resume()
    assert re.fullmatch(r"[0-9a-f-]{36}", session)
    assert json.loads(first)["outcome"] == "new_run"
    assert json.loads(second) == json.loads(first) | {"outcome": "steered"}
    entries = json.loads(log)["items"]
    assert [entry["type"] for entry in entries].count("input.consumed") == 2
    assert entries[-1]["type"] == "run.succeeded"
    assert "Keep it to one page." in [entry for entry in entries if entry["type"] == "message"][-1]["data"]["text"]
    assert [key["label"] for key in json.loads(keys)["items"]] == ["First key"]
    assert json.loads(version)["version"] == 1
    assert json.loads(version)["frontmatter"]["name"] == "greeting"


@pytest.mark.long
def test_the_same_with_qd(at: Shell) -> None:
    blocks = texts_of(blocks_of("docs/use/first-steps.md", "sh", "With `qd`"))
    blocks += texts_of(blocks_of("docs/use/first-steps.md", "sh", "Files, and skills with scripts"))
    shown, words = at.run(blocks, qd_on_path=False)
    assert "> Plan our release." in shown
    assert "pushed house-style version 1" in shown
    assert "5 attachments/letter.txt" in words


@pytest.mark.long
def test_the_same_from_python(at: Shell) -> None:
    (program,) = texts_of(blocks_of("docs/use/first-steps.md", "python"))
    for text, state in (("Plan our release.", "succeeded"), ("demo: fail", "failed")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("Plan our release.", text)],
            env=environment() | at.variables,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert f"> {text}" in done.stdout or state == "failed"
        assert done.stdout.splitlines()[-1] == state


@pytest.mark.long
def test_first_start_shows_the_key_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with qd_serve(data, tmp_path / "first") as serving:
        key = serving.exported("QD_KEY")
    with qd_serve(data, tmp_path / "second") as serving:
        again = httpx.post(
            f"{serving.url}/v1/sessions", json={}, headers={"Authorization": f"Bearer {key}"}, timeout=60
        )
    assert again.status_code == 201
    assert again.json()["created_by"]["display_name"] == "Owner"
    assert "qd_live_" not in (tmp_path / "second").read_text()
