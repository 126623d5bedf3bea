"""What was deleted is deleted from the disks of workers, too."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest

from quarterdeck.session_files import service
from tests.fault.test_sandbox import packed
from tests.fault.test_sandbox_crashes import waiting_at_gate
from tests.fault.waiting import new_session, start, succeeded
from tests.sandboxes import Host, all_results, bash, results, sandbox_host
from tests.session_files import session_files
from tests.workers import Worker, eventually, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

pytestmark = pytest.mark.long

_SWEEP = {"SANDBOX_SWEEP_SECONDS": 0.2}
_SKILL = {"SKILL.md": ("---\nname: notes\ndescription: Notes.\n---\nRead it.\n", 0o644)}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("data"), **PATIENT, SANDBOX_KIND="bubblewrap") as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
def host() -> Iterator[Host]:
    with sandbox_host() as host:
        yield host


@contextmanager
def sweeping(server: Server, host: Host) -> Iterator[Worker]:
    with working(server.database_url, server.data_dir, **host.settings, **_SWEEP) as worker:
        yield worker


def copies(host: Host, text: str) -> list[Path]:
    """Files on the worker's disk with this content. Some may be deleted meanwhile."""
    found = []
    for folder, _, names in os.walk(host.folders):
        for path in (Path(folder) / name for name in names):
            with suppress(FileNotFoundError):
                found += [path] if text in path.read_text(errors="replace") else []
    return found


async def gone(host: Host, text: str) -> None:
    async def look() -> bool:
        return not copies(host, text)

    await eventually(look)


async def delete(world: World, path: str) -> None:
    answer = await world.http.delete(path, headers=world.headers() | {"If-Match": "*"})
    assert answer.status_code == 204, answer.text


async def test_deleted_sessions_files_and_skills(world: World, server: Server, host: Host) -> None:
    skill_id = await world.new_skill("notes")
    assert (await world.push(skill_id, packed(**_SKILL))).status_code == 201
    deleted, emptied, kept = [await new_session(world, sandbox={}) for _ in range(3)]
    skilled = await new_session(world, sandbox={}, skills=[{"skill_id": skill_id}])
    with sweeping(server, host):
        for session_id, text in ((deleted, "first secret"), (emptied, "second secret"), (kept, "kept")):
            await results(world, session_id, bash(f"echo {text} > file"))
        await results(world, skilled, bash("cat skills/notes/SKILL.md"))
        assert len(copies(host, "secret")) == 2
        assert len(copies(host, "name: notes")) == 1
        await delete(world, f"/v1/sessions/{deleted}")
        await gone(host, "first secret")
        # As retention does it.
        async with session_files(server.database_url, server.data_dir, emptied) as files:
            await files.database.transaction(lambda one: service.clear(one, UUID(emptied)), repeatable=True)
        await gone(host, "second secret")
        await delete(world, f"/v1/sessions/{skilled}")
        await delete(world, f"/v1/skills/{skill_id}")
        await gone(host, "name: notes")
        assert len(copies(host, "kept")) == 1
        assert await results(world, emptied, bash("ls | wc -l")) == ["1\n"], "only skills/"
        assert await results(world, kept, bash("cat file")) == ["kept\n"]


async def test_a_run_keeps_the_files_that_it_uses(world: World, server: Server, host: Host) -> None:
    session_id = await new_session(world, sandbox={})
    with sweeping(server, host):
        await results(world, session_id, bash("echo used > file"))
        run_id = await start(world, session_id, bash(f"until [ -e {host.gate} ]; do sleep 0.1; done; cat file"))
        await waiting_at_gate(host)
        # Another revision than that of the folder, as after an input with an attachment.
        await world.execute("UPDATE sessions SET files_revision = files_revision + 1 WHERE id = %s", session_id)
        other = await new_session(world, sandbox={})
        await results(world, other, bash("echo other > file"))
        await delete(world, f"/v1/sessions/{other}")
        await gone(host, "other")
        assert copies(host, "used"), "a sweep has passed"
        host.gate.touch()
        await succeeded(world, run_id)
        assert (await all_results(world, session_id))[-1] == "used\n"


async def test_folders_of_a_killed_worker(world: World, server: Server, host: Host) -> None:
    """A worker that was there before deletes them."""
    session_id = await new_session(world, sandbox={})
    with sweeping(server, host) as killed:
        await results(world, session_id, bash("echo left behind > file"))
        with working(server.database_url, server.data_dir, **host.settings, **_SWEEP):

            async def both() -> bool:
                return len(list(host.folders.glob("*/lock"))) == 2

            await eventually(both)
            assert copies(host, "left behind")
            killed.signal(signal.SIGKILL)
            killed.process.wait()
            await gone(host, "left behind")
