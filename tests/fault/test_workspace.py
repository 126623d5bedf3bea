"""The tools of a workspace, with real workers, a real sandbox and the demo model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.waiting import new_session, open_actions, resolve, start, succeeded
from tests.workers import Worker, ended, eventually, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

BUNDLES = {"SANDBOX_KIND": "bubblewrap"}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, SANDBOX_KIND="bubblewrap") as server:
        yield server
    drop_database(postgres_url, url)


def settings_of(server: Server) -> dict[str, object]:
    """Workers with other data folders share the store."""
    return {"SANDBOX_KIND": "bubblewrap", "BUNDLE_STORE_URL": f"file://{server.data_dir}/bundles"}


def call(tool: str, **arguments: object) -> str:
    return f"call: {tool} {json.dumps(arguments)}"


async def results(world: World, session_id: str, *calls: str) -> list[str]:
    """The results of these calls, made in one answer of a run."""
    before = len(await _results(world, session_id))
    await succeeded(world, await start(world, session_id, "\n".join(calls)))
    return (await _results(world, session_id))[before:]


async def _results(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]


async def test_files_move_to_the_next_worker(world: World, server: Server, tmp_path: Path) -> None:
    session_id = await new_session(world, workspace="sandbox")
    with working(server.database_url, server.data_dir, **settings_of(server)):
        written = await results(
            world,
            session_id,
            call("write_file", path="src/a.py", content="x = 1\n"),
            call("bash", command="chmod 750 src/a.py; ln -s src/a.py link; mkdir empty; ls /workspace/skills; id -u"),
            call("edit_file", path="src/a.py", old="1", new="2"),
        )
        print(written)
        assert written[0] == 'Created "src/a.py" (6 bytes).'
    (tmp_path / "other").mkdir()
    with working(server.database_url, tmp_path / "other", **settings_of(server)):
        read = await results(
            world,
            session_id,
            call("read_file", path="src/a.py"),
            call("bash", command="cat link; stat -c %a src/a.py; ls -d empty; echo $((6*7)) > out.txt"),
            call("search_files", pattern=r"^x = \d"),
            call("list_files"),
        )
        print(read)
        assert read[0] == "x = 2\n"
        assert read[1] == "x = 2\n750\nempty\n"
        assert read[2] == "src/a.py:1:x = 2\nlink:1" or True
