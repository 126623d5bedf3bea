"""The tools of the sandbox, with real workers, a real sandbox and the demo model."""

import gzip
import io
import json
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.waiting import new_session, open_actions, resolve, start, succeeded
from tests.sse import reading
from tests.workers import Worker, ended, eventually, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

LIMITS = {"SANDBOX_FILES": 30, "SANDBOX_ALL_FILES_BYTES": 400_000, "SANDBOX_FILE_BYTES": 300_000}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, SANDBOX_KIND="bubblewrap") as server:
        yield server
    drop_database(postgres_url, url)


def settings_of(server: Server) -> dict[str, object]:
    """Workers with other data folders share the store."""
    return {"SANDBOX_KIND": "bubblewrap", "BLOB_STORE_URL": f"file://{server.data_dir}/blobs"}


@pytest.fixture
def worker(server: Server) -> Iterator[Worker]:
    with working(server.database_url, server.data_dir, **settings_of(server), **LIMITS) as worker:
        yield worker


def call(tool: str, **arguments: object) -> str:
    return f"call: {tool} {json.dumps(arguments)}"


async def results(world: World, session_id: str, *calls: str) -> list[str]:
    """The results of these calls, made in one answer of a run."""
    before = len(await _results(world, session_id))
    await succeeded(world, await start(world, session_id, "\n".join(calls)))
    return (await _results(world, session_id))[before:]


async def _results(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]


@pytest.mark.long
async def test_files_move_to_the_next_worker(world: World, server: Server, tmp_path: Path) -> None:
    """And a file that was added meanwhile is there, as that of an attachment."""
    session_id = await new_session(world, sandbox={})
    with working(server.database_url, server.data_dir, **settings_of(server)):
        written = await results(
            world,
            session_id,
            call("write_file", path="src/a.py", content="x = 1\n"),
            call("bash", command="chmod 750 src/a.py; ln -s src/a.py link; mkdir empty; pwd"),
            call("edit_file", path="src/a.py", old="1", new="2"),
        )
    diff = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    assert written == ['Created "src/a.py" (6 bytes).', "/files\n", diff]
    (tmp_path / "other").mkdir()
    with working(server.database_url, tmp_path / "other", **settings_of(server)):
        read = await results(
            world,
            session_id,
            call("read_file", path="/files/link"),
            call("bash", command="cat link; stat -c %a src/a.py; ls -d empty; exit 3"),
            call("search_files", pattern=r"^x = \d"),
            call("list_files"),
        )
        assert read == [
            "x = 2\n",
            "x = 2\n750\nempty\n\n[Exit code 3.]",
            "src/a.py:1:x = 2",
            "empty/\nlink\nsrc/a.py (6 bytes)",
        ]
        await world.execute(
            "INSERT INTO session_files SELECT session_id, 'attachments/n.txt', kind, sha256, bytes, mode, target, "
            "modified_at FROM session_files WHERE session_id = %s AND path = 'src/a.py'",
            session_id,
        )
        await world.execute("UPDATE sessions SET files_revision = files_revision + 1 WHERE id = %s", session_id)
        assert await results(world, session_id, call("bash", command="cat attachments/n.txt link")) == ["x = 2\n" * 2]
    with working(server.database_url, server.data_dir, SANDBOX_KIND="none"):
        [refused] = await results(world, session_id, call("bash", command="true"))
        assert refused.startswith("Error: this worker has no sandbox")


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_what_is_refused_or_undone(world: World) -> None:
    session_id = await new_session(world, sandbox={})
    calls = {
        call("write_file", path="kept", content="kept"): "Created",
        call(
            "bash", command="rm kept; head -c 300001 /dev/zero > big"
        ): 'Error: the files of the session would exceed their limits: "big"',
        call(
            "bash", command="for i in $(seq 31); do echo > $i; done"
        ): "Error: the files of the session would exceed their limits: more than 30",
        call("write_file", path="big", content="x" * 300_001): "Error: the files of the session would exceed",
        call(
            "bash", command="mkfifo pipe; ln -s /etc/passwd out; ln -s kept in; ls"
        ): "in\nkept\nout\npipe\nskills\n\n[Removed,",
        call("bash", command="cat out; ls"): "cat: out: No such file or directory\nin\nkept\nskills\n",
        call("bash", command="true", timeout_seconds=1000): "Error: a command can run for 120 s at most.",
        call("bash", command="echo x; sleep 600", timeout_seconds=0.5): "x\n\n[The command was stopped",
        call("bash", command="echo x > skills/x"): "bash: line 1: skills/x: Read-only file system",
        call("write_file", path="skills/x", content=""): 'Error: "skills/x" cannot be written',
        call("write_file", path="in", content=""): 'Error: "in" is a link to "kept"',
        call("write_file", path="kept/x", content=""): 'Error: "kept/x" has a file where a folder is expected',
        call("read_file", path="../../etc/passwd"): 'Error: "../../etc/passwd" leaves the folder of the session',
        call("edit_file", path="kept", old="k", new="K"): "--- a/kept",
        call("edit_file", path="kept", old="zz", new=""): 'Error: the text occurs 0 times in "kept"',
        call("search_files", pattern="(a+)+$["): "Error: this is not a regular expression",
        call("read_file", path="kept"): "Kept",
    }
    found = await results(world, session_id, *calls)
    for made, result, expected in zip(calls, found, calls.values(), strict=True):
        assert result.startswith(expected), made
    rows = await world.fetch("SELECT path, kind FROM session_files WHERE session_id = %s ORDER BY path", session_id)
    assert rows == [("in", "link"), ("kept", "file")]


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_live_output_long_output_and_cancel(world: World, server: Server) -> None:
    session_id = await new_session(world, sandbox={})
    async with reading(server.url, session_id, world.key) as reader:
        run_id = await start(world, session_id, call("bash", command="echo one; touch f; sleep 600; echo two"))
        while (message := await reader.next()) is not None and message.event != "tool.delta":
            assert message.event != "tool.result"
    assert message is not None
    [made] = [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "tool.call"]
    assert (message.data["text"], message.data["call_id"], message.data["run_id"]) == ("one\n", made["call_id"], run_id)
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    assert (await ended(world, run_id))["state"] == "cancelled"
    listed, long = await results(world, session_id, call("list_files"), call("bash", command="seq 20000"))
    assert listed == "The folder is empty."
    assert long.startswith("1\n2\n")
    assert long.endswith("19999\n20000\n")
    [path] = [line for line in long.splitlines() if "cut here" in line]
    path = path.split("The whole output is in ")[1].removesuffix(".]")
    [counted] = await results(world, session_id, call("bash", command=f"wc -l < {path}; ! pgrep -x sleep"))
    assert counted == "20000\n"


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_policy(world: World) -> None:
    """The rule of the sandbox is allow; entries of the session go first."""
    session_id = await new_session(world, sandbox={}, tool_policy={"bash": "ask", "write_*": "deny"})
    run_id = await start(
        world, session_id, f"{call('bash', command='echo hi')}\n{call('write_file', path='a', content='')}"
    )
    [action] = await open_actions(world, run_id)
    assert (action["kind"], action["tool"], action["arguments"]) == ("approval", "bash", {"command": "echo hi"})
    await resolve(world, action, decision="allow")
    await succeeded(world, run_id)
    assert sorted(await _results(world, session_id))[1] == "hi\n"
    plain = await new_session(world, sandbox=None)
    assert await results(world, plain, call("bash", command="true")) == ['Error: there is no tool "bash".']


@pytest.mark.long
@pytest.mark.parametrize(
    ("network", "order"), [(False, signal.SIGKILL), (True, signal.SIGKILL), (False, signal.SIGTERM)]
)
async def test_a_worker_that_is_stopped_during_a_command(
    world: World, server: Server, network: bool, order: signal.Signals
) -> None:
    """Without a network the command has left nothing behind, and is repeated. With one, a person is asked."""
    session_id = await new_session(world, sandbox={})
    settings = settings_of(server) | {"SANDBOX_NETWORK": network}
    # Sleeps only in the sandbox of the first worker, which has a larger /tmp.
    command = "echo line >> f; cat f; if [ $(stat -f -c %b /tmp) -gt 2000 ]; then sleep 600; fi"
    with working(server.database_url, server.data_dir, **settings) as first:
        run_id = await start(world, session_id, call("bash", command=command))

        async def is_running() -> bool:
            return any(entry["type"] == "tool.started" for entry in await log_of(world, session_id))

        await eventually(is_running)
        first.signal(order)
        first.process.wait()
    await take_for_dead(world)
    settings |= {"SANDBOX_TEMPORARY_BYTES": 4 * 1024 * 1024}
    with working(server.database_url, server.data_dir, **settings):
        if network:
            [action] = await open_actions(world, run_id)
            assert (action["kind"], action["tool"]) == ("unknown_outcome", "bash")
            await resolve(world, action, decision="retry")
        await succeeded(world, run_id)
        assert await _results(world, session_id) == ["line\n"]
        assert await results(world, session_id, call("read_file", path="f")) == ["line\n"]


def packed(**files: tuple[str, int]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, (text, mode) in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text.encode()), mode
            tar.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(raw.getvalue())


@pytest.mark.usefixtures("worker")
async def test_scripts_of_skills(world: World) -> None:
    skill_id = await world.new_skill("word-count")
    scripts = {
        "SKILL.md": ("---\nname: word-count\ndescription: Counts words.\n---\nRun scripts/count.sh FILE.\n", 0o644),
        "scripts/count.sh": ("#!/bin/sh\nwc -w < $1\n", 0o755),
        "scripts/plain.sh": ("cat $(dirname $0)/../SKILL.md | tail -1\n", 0o644),
    }
    assert (await world.push(skill_id, packed(**scripts))).status_code == 201
    session_id = await new_session(world, sandbox={}, skills=[{"skill_id": skill_id}])
    found = await results(
        world,
        session_id,
        call(
            "bash",
            command="echo a b c > t; skills/word-count/scripts/count.sh t; sh skills/word-count/scripts/plain.sh",
        ),
        call("bash", command="echo x >> skills/word-count/SKILL.md"),
        call("read_file", path="skills/word-count/scripts/plain.sh"),
        call("list_files", path="skills/word-count"),
        call("search_files", pattern="wc", path="skills/word-count"),
        call("read_file", path="skills/word-count/../../t"),
    )
    assert found[0] == "3\nRun scripts/count.sh FILE.\n"
    assert found[1].endswith("[Exit code 1.]")
    assert found[2] == scripts["scripts/plain.sh"][0]
    assert found[3].splitlines()[1] == "scripts/count.sh (21 bytes)"
    assert found[4] == "skills/word-count/scripts/count.sh:2:wc -w < $1"
    assert found[5].startswith("Error: ")
