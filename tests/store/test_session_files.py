"""The files of sessions in transactions, also in those that run at the same time."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from quarterdeck.blobs.service import sweep_blobs
from quarterdeck.events.log import lock_session
from quarterdeck.models.model import ToolResult
from quarterdeck.runs import calls
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Superseded
from quarterdeck.sandbox.manifest import FileChanges, FileKind, InvalidPath, PathConflict
from quarterdeck.session_files import service
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.worker import journal
from tests.session_files import NOW, SessionFiles, session_files, stored_file, stored_folder, stored_link
from tests.workers import begin_demo_run, eventually, log_of
from tests.world import Server, World


@pytest.fixture
async def files(world: World, server: Server, tmp_path: Path) -> AsyncIterator[SessionFiles]:
    async with session_files(server.database_url, tmp_path, await world.new_session()) as found:
        yield found


async def begin(world: World, files: SessionFiles, run_id: UUID | None = None) -> Lease:
    if run_id is None:
        run_id = UUID((await world.submit(str(files.session_id))).json()["run_id"])
    lease = await begin_demo_run(files.database, run_id)
    assert lease is not None
    return lease


async def record(files: SessionFiles, lease: Lease, call_id: str, *paths: str) -> int | None:
    """As a worker does after a call that wrote these files."""
    changes = FileChanges([await files.file(path, path.encode()) for path in paths], [])
    entry = journal.entry_of(ToolResult(call_id, "bash", "done"))
    return await calls.record_result(files.database, lease, entry, changes)


async def results(world: World, files: SessionFiles) -> list[str]:
    entries = await log_of(world, str(files.session_id))
    return [one["data"]["call_id"] for one in entries if one["type"] == "tool.result"]


async def is_waiting_for_lock(world: World) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await world.fetch(query))


async def test_changes_become_the_manifest(files: SessionFiles) -> None:
    empty = await files.manifest()
    assert (empty.revision, empty.files) == (0, [])
    written = [await files.file("a", b"one", 0o755), stored_link("b/link", "../a"), stored_folder("c")]
    assert await files.apply(written) == 1
    manifest = await files.manifest()
    assert manifest.revision == 1
    [a, b, c] = manifest.files
    assert (a.path, a.kind, a.bytes, a.mode, a.modified_at) == ("a", FileKind.FILE, 3, 0o755, NOW)
    assert a.sha256 == hashlib.sha256(b"one").hexdigest()
    assert a.generation is not None
    assert await files.blobs.read(a.blob, 0, 3) == b"one"
    assert (b.path, b.kind, b.target, b.sha256, b.generation) == ("b/link", FileKind.LINK, "../a", None, None)
    assert (c.path, c.kind) == ("c", FileKind.FOLDER)
    assert await files.apply([await files.file("a", b"other")], ["b/link", "not there"]) == 2
    assert [(file.path, file.bytes) for file in (await files.manifest()).files] == [("a", 5), ("c", 0)]
    assert await files.apply([]) == 2, "nothing changed"


async def test_a_path_is_either_a_file_or_a_folder(files: SessionFiles) -> None:
    await files.put([b"text"])
    await files.apply([stored_file("a"), stored_folder("b"), stored_file("a.txt")])
    # A file becomes a folder, and an empty folder gets a file.
    await files.apply([stored_file("a/b/c"), stored_file("b/d")], ["a"])
    assert await files.paths() == ["a.txt", "a/b/c", "b/d"]
    # A call found the folder empty; meanwhile an input added a file.
    await files.apply([stored_folder("b")])
    assert await files.paths() == ["a.txt", "a/b/c", "b/d"]
    before = await files.manifest()
    for written in (["a"], ["a/b"], ["b/d/e"], ["x", "x/y"], ["x/y/z", "x"], ["y", "y"]):
        with pytest.raises(PathConflict):
            await files.apply([stored_file(path) for path in written])
    with pytest.raises(PathConflict):
        await files.apply([stored_file("a")], ["a"])
    for path in ("", "/a", "a/", "a//b", "./a", "a/../b", "a\0b", "a\ud800", "x" * 256, "x/" * 600 + "x"):
        with pytest.raises(InvalidPath):
            await files.apply([stored_file(path)])
    for target in ("/etc/passwd", "../../a", "b/../../..", "", "a\0", "\ud800", "x" * 5000):
        with pytest.raises(InvalidPath):
            await files.apply([stored_link("f/link", target)])
    assert await files.manifest() == before
    # A folder becomes a file.
    await files.apply([stored_file("a")], ["a/b/c"])
    assert await files.paths() == ["a", "a.txt", "b/d"]


async def test_files_and_result_are_stored_together_and_once(world: World, files: SessionFiles) -> None:
    lease = await begin(world, files)
    assert await record(files, lease, "c", "a") == 1
    assert await record(files, lease, "c", "b") is None, "the result is stored"
    with pytest.raises(PathConflict):
        await record(files, lease, "d", "a/b")
    assert (await results(world, files), await files.paths()) == (["c"], ["a"])
    # Another attempt has taken the run, as after a pause of the worker.
    newer = await begin(world, files, lease.run_id)
    with pytest.raises(Superseded):
        await record(files, lease, "d", "old")
    assert (await results(world, files), await files.paths()) == (["c"], ["a"])
    assert await record(files, newer, "d", "new") == 2
    await world.post(f"/v1/runs/{lease.run_id}/cancel", None)
    with pytest.raises(Superseded):
        await record(files, newer, "e", "late")
    assert (await results(world, files), await files.paths()) == (["c", "d"], ["a", "new"])


async def test_changes_wait_for_an_input_that_adds_an_attachment(world: World, files: SessionFiles) -> None:
    lease = await begin(world, files)
    await files.put([b"attached"])
    async with await world.connect() as connection, connection.transaction():
        await lock_session(connection, files.session_id)
        attached = FileChanges([stored_file("attachments/x", b"attached")], [])
        recording = asyncio.create_task(record(files, lease, "c", "a"))
        await eventually(partial(is_waiting_for_lock, world))
        assert await service.apply_changes(connection, files.session_id, attached) == 1
    assert await recording == 2, "not the next revision after that of the worker's folder"
    assert await files.paths() == ["a", "attachments/x"]


async def test_a_fork_has_the_files_of_one_revision(world: World, files: SessionFiles) -> None:
    """It does not wait for changes, and sees all of a change or nothing."""
    await files.apply([await files.file(path, b"before") for path in ("a", "b")])
    sha256 = hashlib.sha256(b"before").digest()
    attached = "INSERT INTO session_attachments (session_id, sha256) VALUES (%s, %s)"
    await world.execute(attached, files.session_id, sha256)
    await files.put([b"after"])
    path = f"/v1/sessions/{files.session_id}/fork"
    async with await world.connect() as connection, connection.transaction():
        await lock_session(connection, files.session_id)
        changes = FileChanges([stored_file("a", b"after"), stored_file("c", b"after")], ["b"])
        await service.apply_changes(connection, files.session_id, changes)
        during = UUID((await world.post(path, {})).json()["id"])
    after = UUID((await world.post(path, {})).json()["id"])
    first, second = await files.manifest(during), await files.manifest(after)
    assert [(file.path, file.bytes) for file in first.files] == [("a", 6), ("b", 6)]
    assert [(file.path, file.bytes) for file in second.files] == [("a", 5), ("c", 5)]
    assert second.files == (await files.manifest()).files
    assert (first.revision, second.revision) == (1, 1)
    kept = await world.fetch("SELECT sha256 FROM session_attachments WHERE session_id = %s", after)
    assert kept == [(sha256,)]


async def test_a_deleted_session_frees_its_contents(world: World, files: SessionFiles) -> None:
    # More files than a batch of the purge.
    contents = {str(n): f"{files.session_id} {n}".encode() for n in range(120)}
    attached = f"{files.session_id} attached".encode()
    await files.write(contents)
    await files.put([attached])
    attach = "INSERT INTO session_attachments (session_id, sha256) VALUES (%s, %s)"
    await world.execute(attach, files.session_id, hashlib.sha256(attached).digest())
    fork_id = UUID((await world.post(f"/v1/sessions/{files.session_id}/fork", {})).json()["id"])
    fork = SessionFiles(files.database, files.blobs, fork_id)
    await fork.apply([], list(contents)[1:])
    hashes = [hashlib.sha256(one).digest() for one in (*contents.values(), attached)]
    await world.execute("UPDATE blobs SET touched_at = now() - interval '25 hours' WHERE sha256 = ANY (%s)", hashes)

    async def left() -> int:
        await sweep_blobs(files.database, files.blobs, 24)
        return len(await world.fetch("SELECT FROM blobs WHERE sha256 = ANY (%s)", hashes))

    async def rows(session_id: UUID) -> list[int]:
        tables = ("session_files", "session_attachments")
        return [len(await world.fetch(f"SELECT FROM {name} WHERE session_id = %s", session_id)) for name in tables]

    assert await left() == 121, "all are in use"
    assert (await world.delete(f"/v1/sessions/{files.session_id}")).status_code == 204
    await purge_deleted_sessions(files.database)
    assert (await rows(files.session_id), await rows(fork_id)) == ([0, 0], [1, 1])
    assert await left() == 2, "those of the fork"
    assert (await world.delete(f"/v1/sessions/{fork_id}")).status_code == 204
    await purge_deleted_sessions(files.database)
    assert await left() == 0


async def test_thousands_of_files_are_stored_within_the_statement_timeout(files: SessionFiles) -> None:
    """Comparing every path with every other takes longer than the timeout, however often it is tried."""
    await files.put([b"text"])
    new = [stored_file(f"{number // 50}/{number}") for number in range(6_000)]
    assert await files.apply([*new, stored_folder("empty")]) == 1
    more = [stored_file(f"{number}/more/file") for number in range(120)]
    assert await files.apply([*more, stored_file("empty/file")], [file.path for file in new[:3_000]]) == 2
    left = [file.path for file in (*new[3_000:], *more)]
    assert await files.paths() == sorted([*left, "empty/file"])
    with pytest.raises(PathConflict):
        await files.apply([stored_file(f"{number}/more") for number in range(120)])
