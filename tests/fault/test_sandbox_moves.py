"""Two workers with folders of their own and one object store: sessions move, and scripts of skills run."""

import io
import json
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec import Struct

from tests.fault.waiting import new_session, start, succeeded
from tests.object_store import STORE_URL, object_store
from tests.sandboxes import Host, all_results, bash, content, results, sandbox_host
from tests.workers import ended, started, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

pytestmark = pytest.mark.long

_SKILL = {
    "SKILL.md": "---\nname: sales-report\ndescription: Reports about sales.\n---\nRun the scripts in scripts/.\n",
    "references/template.html": "<h1>TOTAL</h1>\n",
    "scripts/lib/columns.py": """\
import csv

def total(path, column):
    with open(path, newline="", encoding="utf-8") as file:
        return sum(float(row[column]) for row in csv.DictReader(file))
""",
    "scripts/summarize.py": """\
import argparse, json, pathlib
from lib.columns import total

parser = argparse.ArgumentParser()
parser.add_argument("input")
parser.add_argument("--column", required=True)
parser.add_argument("--output", required=True, type=pathlib.Path)
arguments = parser.parse_args()
arguments.output.parent.mkdir(parents=True, exist_ok=True)
arguments.output.write_text(json.dumps({"total": total(arguments.input, arguments.column)}))
print("wrote", arguments.output)
""",
    "scripts/package.sh": """\
#!/usr/bin/env bash
set -euo pipefail
tar -czf "$2" -C "$1" .
tar -tzf "$2" | sort
""",
    "scripts/render.js": """\
const fs = require("fs"), path = require("path");
const [, , input, output] = process.argv;
const template = fs.readFileSync(path.join(__dirname, "../references/template.html"), "utf8");
fs.writeFileSync(output, template.replace("TOTAL", JSON.parse(fs.readFileSync(input)).total));
""",
}
_SALES = "name,amount\nä,1.5\nb,2.25\n".encode()


class Pair(Struct, frozen=True):
    """The hosts of two workers, each of which does one run at a time."""

    first: Host
    second: Host


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    settings = PATIENT | {"SANDBOX_KIND": "bubblewrap", "BLOB_STORE_URL": STORE_URL}
    with object_store(), serving(url, tmp_path_factory.mktemp("api"), **settings) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def workers(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        hosts = [stack.enter_context(sandbox_host()) for _ in range(2)]
        for host in hosts:
            # Also a folder with other files than the stored ones stays until it is used again.
            lasting = {"SANDBOX_SWEEP_SECONDS": 3600}
            settings = {"BLOB_STORE_URL": STORE_URL, "WORKER_CONCURRENCY": 1} | lasting | host.settings
            stack.enter_context(working(server.database_url, tmp_path_factory.mktemp("worker"), **settings))
        yield Pair(*hosts)


class Occupied(Struct, frozen=True):
    """A worker that is busy with another run."""

    world: World
    run_id: str

    async def release(self) -> None:
        await self.world.post(f"/v1/runs/{self.run_id}/cancel", None)
        await ended(self.world, self.run_id)


async def occupy(world: World) -> Occupied:
    session_id = await new_session(world, sandbox=None)
    run_id = await start(world, session_id, "demo: slow 99\ndemo: steps 5")
    await started(world, session_id)
    return Occupied(world, run_id)


async def attach(world: World, session_id: str, name: str, data: bytes, *calls: str) -> list[str]:
    body = {"type": "input", "text": "\n".join(calls), "attachments": [await world.new_file(name, data)]}
    before = len(await all_results(world, session_id))
    answer = await world.post(f"/v1/sessions/{session_id}/events", body)
    assert answer.status_code == 200, answer.text
    await succeeded(world, answer.json()["run_id"])
    return (await all_results(world, session_id))[before:]


async def unpacked(world: World, session_id: str) -> dict[str, Any]:
    """The archive of its files: modes and contents or targets, by path."""
    answer = await world.get(f"/v1/sessions/{session_id}/files/archive")
    assert answer.status_code == 200
    found: dict[str, Any] = {}
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            found[member.name] = (stat.filemode(member.mode), member.linkname if file is None else file.read())
    return found


def folders(host: Host) -> int:
    return len(list(host.folders.glob("*/sessions/*")))


async def test_session_moves_between_workers(world: World, workers: Pair) -> None:
    session_id = await new_session(world, sandbox={})
    one = await occupy(world)
    # Larger than one part of an upload.
    made = """
        mkdir -p src empty; echo 'echo ran $1' > src/run.sh; chmod 751 src/run.sh; ln -s src/run.sh link
        head -c 6M /dev/urandom > 'große Datei'; sha256sum 'große Datei' attachments/* > sums; chmod 440 sums
        echo one > log; cat attachments/a.txt"""
    assert await attach(world, session_id, "a.txt", b"attached\n", bash(made)) == ["attached\n"]
    two = await occupy(world)
    await one.release()
    look = "sha256sum --quiet -c sums; bash link x; readlink link; stat -c '%a %F' src/run.sh sums empty; cat log"
    modes = "751 regular file\n440 regular file\n755 directory\n"
    change = f"{look}; cat attachments/b.txt; echo two >> log; ln -sf log link; rmdir empty; chmod 600 src/run.sh"
    found = await attach(world, session_id, "b.txt", b"later\n", bash(change))
    assert found == [f"ran x\nsrc/run.sh\n{modes}one\nlater\n"]
    three = await occupy(world)
    await two.release()
    # This worker has a folder of the session as it was before.
    found = await results(world, session_id, bash("cat link; stat -c %a src/run.sh; ls; sha256sum --quiet -c sums"))
    assert found == ["one\ntwo\n600\nattachments\ngroße Datei\nlink\nlog\nskills\nsrc\nsums\n"]
    await three.release()
    assert min(folders(workers.first), folders(workers.second)) > 0, "one of them did everything"
    files = await unpacked(world, session_id)
    assert files["src/run.sh"] == ("?rw-------", b"echo ran $1\n")
    assert files["link"][1] == "log"
    assert files["attachments/b.txt"][1] == b"later\n"
    assert len(files["große Datei"][1]) == 6 * 1024 * 1024


def packed() -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path, text in _SKILL.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text.encode()), 0o755 if path.endswith(".sh") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


@pytest.mark.usefixtures("workers")
async def test_skill_with_scripts(world: World) -> None:
    skill_id = await world.new_skill("sales-report")
    assert (await world.push(skill_id, packed())).status_code == 201
    session_id = await new_session(world, sandbox={}, skills=[{"skill_id": skill_id}])
    scripts = "skills/sales-report/scripts"
    node = shutil.which("node")
    calls = [
        bash(f"python3 {scripts}/summarize.py attachments/sales.csv --column amount --output out/summary.json"),
        bash(f"{scripts}/package.sh out out.tar.gz"),
    ]
    calls += [bash(f"node {scripts}/render.js out/summary.json report.html")] if node else []
    found = await attach(world, session_id, "sales.csv", _SALES, *calls)
    assert found == ["wrote out/summary.json\n", "./\n./summary.json\n", "[No output.]"][: len(calls)]
    assert json.loads(await content(world, session_id, "out/summary.json")) == {"total": 3.75}
    files = await unpacked(world, session_id)
    names = {"attachments/sales.csv", "out/summary.json", "out.tar.gz"} | ({"report.html"} if node else set())
    assert {name for name in files if isinstance(files[name][1], bytes)} == names
    assert not node or files["report.html"][1] == b"<h1>3.75</h1>\n"
