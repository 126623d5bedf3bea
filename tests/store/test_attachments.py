"""Attachments in the database: their paths, and inputs that are refused or meet a deletion."""

import asyncio
from uuid import UUID

import pytest

from quarterdeck.core.settings import FileSettings, ModelSettings, SandboxSettings, SubmitSettings
from quarterdeck.runs.creation import AttachmentRules
from quarterdeck.runs.model import AttachmentRequest, InputEvent, Verdict
from tests.store.test_input_batcher import batching, outcome, submission
from tests.workers import held_up
from tests.world import World

_PATH = "SELECT attachment_path(%s, attachments_folder(%s), %s, %s, '{}')"
_ROW = """
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, target, modified_at)
SELECT %s, %s, %s, CASE %s WHEN 'file' THEN (SELECT sha256 FROM files WHERE id = %s) END, 1, 420,
       CASE %s WHEN 'link' THEN 'x' END, now()
"""
_COUNTS = """
SELECT (SELECT count(*) FROM session_files WHERE session_id = %s),
       (SELECT count(*) FROM session_attachments WHERE session_id = %s),
       (SELECT files_revision FROM sessions WHERE id = %s)
"""
OTHER = b"\1" * 32
# The longest ending, 80 bytes.
ROCKETS = "🚀" * 20


async def session_with_sandbox(world: World) -> UUID:
    session_id = await world.new_session()
    await world.execute("UPDATE sessions SET sandbox = '{}' WHERE id = %s", session_id)
    return UUID(session_id)


def request(*file_ids: str) -> AttachmentRequest:
    rules = AttachmentRules(FileSettings(), SandboxSettings(), ModelSettings())
    made = rules.request(InputEvent("x", "input", attachments=[UUID(one) for one in file_ids]))
    assert made is not None
    return made


async def put(world: World, session_id: UUID, path: str, kind: str, file_id: str) -> None:
    await world.execute(_ROW, session_id, path, kind, kind, file_id, kind)


async def path_of(world: World, session_id: UUID, name: str, sha256: bytes = OTHER) -> str:
    [(path,)] = await world.fetch(_PATH, session_id, session_id, name, sha256)
    assert isinstance(path, str)
    return path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("report.pdf", "report.pdf"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("no extension", "no extension"),
        (".bashrc", "bashrc"),
        ("...", "file"),
        ("..hidden.txt", "hidden.txt"),
        ("a/../b\tc.txt", "a_.._b_c.txt"),
        ("é" * 200 + ".txt", "é" * 125 + ".txt"),
        ("x." + "y" * 190, "x." + "y" * 190),
        ("y" * 150 + "." + ROCKETS, "y" * 150 + "." + ROCKETS),
        ("y" * 176 + "." + ROCKETS, "y" * 174 + "." + ROCKETS),
        # Too long for an ending.
        ("🚀" * 50 + "." + "é" * 100, "🚀" * 50 + "." + "é" * 27),
    ],
)
async def test_names_become_plain_paths(world: World, name: str, path: str) -> None:
    assert await path_of(world, await session_with_sandbox(world), name) == f"attachments/{path}"


async def test_a_path_is_free_or_has_the_same_content(world: World) -> None:
    session_id, file_id = await session_with_sandbox(world), await world.new_file("a.txt", b"a")
    [(content,)] = await world.fetch("SELECT sha256 FROM files WHERE id = %s", file_id)
    await put(world, session_id, "attachments/a.txt", "file", file_id)
    # A folder that is not empty has no row of its own.
    await put(world, session_id, "attachments/a-2.txt/inside", "file", file_id)
    await put(world, session_id, "attachments/a-3.txt", "link", file_id)
    await put(world, session_id, "attachments/a-4.txt", "folder", file_id)
    assert await path_of(world, session_id, "a.txt", content) == "attachments/a.txt"
    assert await path_of(world, session_id, "a.txt") == "attachments/a-5.txt"
    for number in range(5, 21):
        await put(world, session_id, f"attachments/a-{number}.txt", "file", file_id)
    assert await path_of(world, session_id, "a.txt") == f"attachments/a-{OTHER.hex()[:16]}.txt"
    await put(world, session_id, f"attachments/a-{OTHER.hex()[:16]}.txt", "file", file_id)
    assert len(await path_of(world, session_id, "a.txt")) > len("attachments/a-20.txt")

    await world.execute("DELETE FROM session_files WHERE session_id = %s", session_id)
    await put(world, session_id, "attachments", "link", file_id)
    await put(world, session_id, "attachments-2", "folder", file_id)
    assert await path_of(world, session_id, "a.txt") == "attachments-2/a.txt"
    async with batching(world) as inputs:
        sent = submission(world, session_id, attachments=request(file_id))
        assert (await inputs.submit(sent)).verdict is Verdict.ACCEPTED
    rows = await world.fetch("SELECT path, kind FROM session_files WHERE session_id = %s ORDER BY path", session_id)
    assert rows == [("attachments", "link"), ("attachments-2/a.txt", "file")], "an empty folder is no longer empty"


async def test_numbered_names_fit_too(world: World) -> None:
    """A file system refuses names of more than 255 bytes, and then every call in the folder of the session fails."""
    session_id, file_id = await session_with_sandbox(world), await world.new_file("a.txt", b"a")
    name, found = "é" * 170 + "." + ROCKETS, list[str]()
    for _ in range(25):
        path = await path_of(world, session_id, name)
        await put(world, session_id, path, "file", file_id)
        found.append(path.removeprefix("attachments/"))
    assert len(set(found)) == 25
    assert max(len(one.encode()) for one in found) <= 255
    assert found[1] == "é" * 86 + "-2." + ROCKETS
    assert {one.endswith("." + ROCKETS) for one in found} == {True}


async def test_a_refused_input_leaves_nothing_in_a_batch_with_others(world: World) -> None:
    file_id = await world.new_file()
    full, other = await session_with_sandbox(world), await session_with_sandbox(world)
    async with batching(world, submit=SubmitSettings(run_waiting_inputs=1)) as inputs:
        assert (await inputs.submit(submission(world, full))).verdict is Verdict.ACCEPTED
        sent = [
            submission(world, full, attachments=request(file_id)),
            submission(world, other),
            submission(world, other, attachments=request(str(other))),
        ]
        verdicts = await asyncio.gather(*(outcome(inputs.submit(one)) for one in sent))
        assert verdicts == [Verdict.FULL, Verdict.ACCEPTED, Verdict.UNKNOWN_FILE]
        await world.execute("UPDATE sessions SET archived_at = now() WHERE id = %s", other)
        archived = submission(world, other, attachments=request(file_id))
        assert (await inputs.submit(archived)).verdict is Verdict.ARCHIVED
    for session_id in (full, other):
        assert await world.fetch(_COUNTS, session_id, session_id, session_id) == [(0, 0, 0)]


async def test_a_file_that_is_being_deleted_is_unknown_or_stays(world: World) -> None:
    session_id, file_id = await session_with_sandbox(world), await world.new_file()
    async with batching(world) as inputs, await world.connect() as deleting:
        async with deleting.transaction():
            await deleting.execute("DELETE FROM files WHERE id = %s", (file_id,))
            waiting = asyncio.create_task(inputs.submit(submission(world, session_id, attachments=request(file_id))))
            await held_up(world)
        assert (await waiting).verdict is Verdict.UNKNOWN_FILE
    assert await world.fetch(_COUNTS, session_id, session_id, session_id) == [(0, 0, 0)]
