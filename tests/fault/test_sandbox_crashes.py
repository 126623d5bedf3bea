"""Workers that are lost or paused around a command: what it did to the files is stored once, with its result, or
not at all."""

import errno
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.fault.stand_in import Brake
from tests.fault.waiting import new_session, open_actions, resolve, start, succeeded, types_of
from tests.sandboxes import Host, all_results, bash, content, results, sandbox_host
from tests.session_files import session_files
from tests.workers import Worker, eventually, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

pytestmark = pytest.mark.long

_WAITING_FOR_TABLE = """
SELECT FROM pg_locks WHERE NOT granted AND relation = %s::regclass
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_FILES = """
SELECT f.path, encode(f.sha256, 'hex'), f.mode, s.files_revision
FROM sessions s JOIN session_files f ON f.session_id = s.id WHERE s.id = %s ORDER BY f.path
"""


class Point(StrEnum):
    """Where the worker is killed."""

    RESTORE = "while the folder is restored"
    COMMAND = "while the command runs"
    CONTENTS = "before the contents are stored"
    TRANSACTION = "between the contents and the transaction"
    COMMIT = "in the transaction"


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, SANDBOX_KIND="bubblewrap") as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
def host() -> Iterator[Host]:
    with sandbox_host() as host:
        yield host


async def prepared(world: World, server: Server, name: str) -> str:
    """A session with files that no other has."""
    session_id = await new_session(world, sandbox={})
    async with session_files(server.database_url, server.data_dir, session_id) as files:
        await files.write({"log": b"before\n", "data/name": name.encode()})
    return session_id


@asynccontextmanager
async def locked_table(world: World, table: str) -> AsyncIterator[None]:
    """Others can read it, and wait when they write to it."""
    async with await AsyncConnection.connect(world.database_url) as holder:
        await holder.execute(f"LOCK TABLE app.{table} IN SHARE MODE".encode())
        yield


async def waiting_for_table(world: World, table: str) -> None:
    async def look() -> bool:
        return bool(await world.fetch(_WAITING_FOR_TABLE, f"app.{table}"))

    await eventually(look)


@asynccontextmanager
async def blocked_content(data_dir: Path, text: bytes) -> AsyncIterator[Path]:
    """Whoever reads this content from the store waits for more of it."""
    sha256 = hashlib.sha256(text).hexdigest()
    [blob] = (data_dir / "blobs" / sha256[:2]).glob(f"{sha256}.*")
    kept = blob.rename(data_dir / "kept")
    os.mkfifo(blob)
    try:
        yield blob
    finally:
        kept.rename(blob)


async def being_read(pipe: Path) -> int:
    async def look() -> int | None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as fault:
            if fault.errno != errno.ENXIO:
                raise
            return None

    opened: int = await eventually(look)
    return opened


async def waiting_at_gate(host: Host) -> None:
    """Looks for the `sleep` of the command's loop. A worker that starts has other commands, which check the sandbox,
    and the processes around a command do not need the worker any more once it sleeps."""

    async def look() -> bool:
        return any("['sleep'," in command for command in host.commands())

    await eventually(look)


async def all_ended(host: Host) -> None:
    async def look() -> bool:
        return not host.commands()

    await eventually(look)


async def walk_to_result(world: World, brake: Brake) -> None:
    while "tool.started" not in await types_of(world, brake.session_id):
        await brake.let_pass()
    await brake.waiting()


async def lose_worker(world: World, server: Server, host: Host, sessions: dict[Point, str]) -> dict[Point, str]:
    """A run of each session, by one worker, which is killed when each has reached its point."""
    waits = f"echo x >> log; until [ -e {host.gate} ]; do sleep 0.1; done"
    texts = {point: bash(waits if point is Point.COMMAND else "echo x >> log") for point in Point}
    early = (Point.RESTORE, Point.COMMAND, Point.TRANSACTION)
    runs = {point: await start(world, sessions[point], texts[point]) for point in early}
    settings = {"WORKER_CONCURRENCY": len(Point)} | host.settings
    async with (
        Brake(world, sessions[Point.TRANSACTION]) as brake,
        blocked_content(server.data_dir, Point.RESTORE.encode()) as pipe,
    ):
        with working(server.database_url, server.data_dir, **settings) as worker:
            writer = await being_read(pipe)
            await walk_to_result(world, brake)
            await waiting_at_gate(host)
            async with locked_table(world, "session_files"):
                runs[Point.COMMIT] = await start(world, sessions[Point.COMMIT], texts[Point.COMMIT])
                await waiting_for_table(world, "session_files")
                async with locked_table(world, "blobs"):
                    runs[Point.CONTENTS] = await start(world, sessions[Point.CONTENTS], texts[Point.CONTENTS])
                    await waiting_for_table(world, "blobs")
                    kill(worker)
            os.close(writer)
    return runs


def kill(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)
    worker.process.wait()


async def test_worker_killed_around_a_command(world: World, server: Server, host: Host) -> None:
    sessions = {point: await prepared(world, server, point) for point in Point}
    runs = await lose_worker(world, server, host, sessions)
    await all_ended(host)
    [dead] = host.folders.iterdir()
    assert any((dead / "sessions").iterdir())
    for point in Point:
        assert await all_results(world, sessions[point]) == [], point
        assert await content(world, sessions[point], "log") == b"before\n", point
    host.gate.touch()
    await take_for_dead(world)
    with working(server.database_url, server.data_dir, **host.settings):
        for point in Point:
            await succeeded(world, runs[point])
            assert await all_results(world, sessions[point]) == ["[No output.]"], point
            assert await content(world, sessions[point], "log") == b"before\nx\n", point
            found = await results(
                world, sessions[point], bash("cat log data/name; find -type f | sort; stat -c %a log")
            )
            assert found == [f"before\nx\n{point}./data/name\n./log\n644\n"], point

        async def is_removed() -> bool:
            return not dead.exists()

        await eventually(is_removed)
    assert list(host.folders.iterdir()) == []
    assert host.commands() == []


async def state(world: World, session_id: str) -> list[Any]:
    return [await log_of(world, session_id), await world.fetch(_FILES, session_id)]


async def test_paused_worker_writes_nothing_after_another_took_over(world: World, server: Server, host: Host) -> None:
    """With a network, the command may have had other effects: a person is asked."""
    session_id = await prepared(world, server, "paused")
    settings = host.settings | {"SANDBOX_NETWORK": True}
    with working(server.database_url, server.data_dir, **settings) as sleeper:
        command = f"echo x >> log; until [ -e {host.gate} ]; do sleep 0.1; done"
        run_id = await start(world, session_id, bash(command))
        await waiting_at_gate(host)
        sleeper.signal(signal.SIGSTOP)
        # Its command ends while it sleeps.
        host.gate.touch()
        await all_ended(host)
        await take_for_dead(world)
        with working(server.database_url, server.data_dir, **settings) as second:
            [action] = await open_actions(world, run_id)
            assert (action["kind"], action["tool"]) == ("unknown_outcome", "bash")
            await resolve(world, action, decision="retry")
            await succeeded(world, run_id)
            settled = await state(world, session_id)
            assert len(list(host.folders.iterdir())) == 2, "the folder of a paused worker is left alone"
            sleeper.signal(signal.SIGCONT)

            async def gave_up() -> bool:
                return "went on without this attempt" in sleeper.log.read_text()

            await eventually(gave_up)
            assert await state(world, session_id) == settled
            kill(second)
        # The folder with the first try of the command is not used again.
        assert await results(world, session_id, bash("cat log")) == ["before\nx\n"]
