"""Commands that take all they can get, beside the runs of another workspace on the same worker process."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fault.waiting import new_session, start, succeeded
from tests.sandboxes import all_results, bash, content, results, sandbox_host
from tests.workers import Worker, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

_MIB = 1024 * 1024
_BOUNDS = {
    "SANDBOX_PROCESSES": 60,
    "SANDBOX_MEMORY_BYTES": 192 * _MIB,
    "SANDBOX_FILE_BYTES": 8 * _MIB,
    "WORKER_CONCURRENCY": 6,
}
# Command → part of its result.
_ATTACKS = {
    "bomb() { bomb | bomb & }; bomb; sleep 1000": "more than 60 processes",
    "for i in 1 2 3; do python3 -c 'x = bytearray(100_000_000); import time; time.sleep(1000)' & done; wait": (
        "more than 192 MiB of memory"
    ),
    "echo kept > file; yes": "output exceeded 8 MiB",
    "trap '' TERM; for i in 1 2 3 4; do (while :; do :; done) & done; while :; do :; done": "more than 5 s",
}
_SECONDS = 5


@pytest.fixture
def server(postgres_url: str, template: str, tmp_path: Path) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path, **PATIENT, SANDBOX_KIND="bubblewrap") as server:
        yield server
    drop_database(postgres_url, url)


def cgroups(worker: Worker) -> set[str]:
    """Those that the worker has open, which it does as long as it uses them."""
    found = set()
    for entry in Path(f"/proc/{worker.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            path = os.readlink(entry)
            found |= {path} if "quarterdeck-sandbox-" in path else set()
    return found


async def attack(world: World, command: str) -> list[str]:
    session_id = await new_session(world, sandbox={})
    limit = {"timeout_seconds": _SECONDS} if _ATTACKS[command] == f"more than {_SECONDS} s" else {}
    await succeeded(world, await start(world, session_id, bash(command, **limit)))
    return await all_results(world, session_id)


@pytest.mark.long
async def test_commands_that_take_all_they_can_get(world: World, server: Server, tmp_path: Path) -> None:
    neighbour = await World.create(server.database_url, world.http)
    session_id = await new_session(neighbour, sandbox={})
    with (
        sandbox_host() as host,
        working(server.database_url, tmp_path, **host.settings, **_BOUNDS) as worker,
    ):
        attacks = {command: asyncio.create_task(attack(world, command)) for command in _ATTACKS}
        seen: set[str] = set()
        rounds = 0
        while not all(task.done() for task in attacks.values()):
            seen |= cgroups(worker)
            rounds += 1
            assert await results(neighbour, session_id, bash(f"echo {rounds} >> log")) == ["[No output.]"]
        for command, task in attacks.items():
            [found] = task.result()
            assert _ATTACKS[command] in found, command
        assert rounds > 1
        expected = "".join(f"{number}\n" for number in range(1, rounds + 1))
        assert await content(neighbour, session_id, "log") == expected.encode()
        assert worker.process.poll() is None
        assert host.commands() == []
        assert cgroups(worker) == set()
        assert not any(Path(path).exists() for path in seen)
        worker.process.terminate()
        assert worker.process.wait(60) == 0
        assert list(host.folders.iterdir()) == []
