"""The README's first conversation, run as it is written, against the server that it tells the reader to start."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from tests.cli.command import START_SECONDS, Serving, environment, qd_serve

README = Path(__file__).parents[2] / "README.md"


# Enough of curl for the README, for a machine that has none: the suite asks for Python, pip and make only.
CURL = """#!{python}
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
method = "GET" if content is None else "POST"
sys.stdout.write(httpx.request(method, given.url, content=content, headers=headers, timeout=60).text)
"""


def path_with_curl(tmp_path: Path) -> str:
    if shutil.which("curl") is None:
        stand_in = tmp_path / "bin" / "curl"
        stand_in.parent.mkdir()
        stand_in.write_text(CURL.format(python=sys.executable))
        stand_in.chmod(0o755)
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


# What a person means by the README's `sleep 5`, on a machine of any speed: until the run has ended.
WAIT = """
import os, sys, time, httpx
headers = {"Authorization": "Bearer " + os.environ["QD_KEY"]}
url = os.environ["QD_URL"] + "/v1/sessions/" + sys.argv[1] + "/runs"
while any(run["finished_at"] is None for run in httpx.get(url, headers=headers, timeout=60).json()["items"]):
    time.sleep(0.1)
"""


def conversation() -> list[str]:
    text = README.read_text("utf-8").split("## A first conversation")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def worker_of(serving: Serving) -> psutil.Process:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for process in psutil.Process(serving.process.pid).children():
            if process.cmdline()[-1:] == ["worker"]:
                return process
    raise AssertionError("no worker was started")


def test_the_two_commands_come_first() -> None:
    assert re.findall(r"```sh\n(.*?)\n```", README.read_text("utf-8"), re.DOTALL)[:2] == ["make serve", "make test"]


def test_first_conversation(tmp_path: Path) -> None:
    blocks = conversation()
    assert len(blocks) == 6
    (tmp_path / "wait.py").write_text(WAIT)
    with qd_serve(tmp_path / "data", tmp_path / "output") as serving:
        exports = {name: serving.exported(name) for name in ("QD_URL", "QD_WORKSPACE", "QD_KEY")}
        # "Right away", however long a busy machine takes: the agent is held until the second input is sent.
        worker = worker_of(serving)
        worker.suspend()
        blocks[2] += f"kill -CONT {worker.pid}\n"
        script = f'sleep() {{ "{sys.executable}" wait.py $SESSION; }}\n' + "\necho; echo ---\n".join(blocks)
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            env=environment() | exports | {"PATH": path_with_curl(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    session, first, second, log, keys, version = (part.strip() for part in done.stdout.split("---\n"))
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


def test_first_start_shows_the_key_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with qd_serve(data, tmp_path / "first") as serving:
        key = serving.exported("QD_KEY")
    with qd_serve(data, tmp_path / "second") as serving:
        again = httpx.post(
            f"{serving.url}/v1/sessions", json={}, headers={"Authorization": f"Bearer {key}"}, timeout=60
        )
    assert again.status_code == 201
    assert "qd_live_" not in (tmp_path / "second").read_text()
