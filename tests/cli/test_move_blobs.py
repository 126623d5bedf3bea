"""`qd admin move-blobs`: contents move to another store while the server runs, and can be read at every moment."""

import asyncio
import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.cli.command import environment, qd_here
from tests.contract.test_object_store import objects, s3  # noqa: F401 - fixtures
from tests.object_store import STORE_URL
from tests.processes import until
from tests.world import PATIENT, World, bundle, free_port, serving

SMALL = 40
# The large archive with its two files, the small ones with a file each, the SKILL.md of all, and two uploaded files.
CONTENTS = 3 + 2 * SMALL + 1 + 2


class Installation:
    """Skills and files whose contents are in a folder at first."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.database_url = database_url
        self.old = folder / "old"
        self.settings = {
            "BLOB_STORE_URL": STORE_URL,
            "BLOB_FALLBACK_STORE_URL": f"file://{self.old}",
            "SERVER_DATA_DIR": str(folder / "data"),
        }
        # What each path answers.
        self.expected: dict[str, bytes] = {}

    async def fill(self, world: World) -> None:
        skill_id = await world.new_skill()
        large = {"large.txt": "".join(f"line {number}\n" for number in range(100_000)),
                 "noise": random.Random(1).randbytes(3_000_000).hex()}  # fmt: skip
        archives = [bundle(**large), *(bundle(number=str(number)) for number in range(SMALL))]
        for number, archive in enumerate(archives, 1):
            assert (await world.push(skill_id, archive)).status_code == 201
            self.expected[f"/v1/skills/{skill_id}/versions/{number}/bundle"] = archive
        self.expected[f"/v1/skills/{skill_id}/versions/1/file?path=large.txt"] = large["large.txt"].encode()
        for name, content in (("empty.bin", b""), ("data.bin", random.Random(2).randbytes(6_000_000))):
            self.expected[f"/v1/files/{await world.new_file(name, content)}/content"] = content
        await self.check(world)

    async def check(self, world: World) -> None:
        for path, content in self.expected.items():
            answer = await world.get(path)
            assert (answer.status_code, answer.content == content) == (200, True), (path, answer.text[:200])

    def files(self) -> list[Path]:
        return [path for path in self.old.rglob("*") if path.is_file()]

    def move(self, *options: str) -> "subprocess.CompletedProcess[str]":
        settings = self.settings | {"DATABASE_URL": self.database_url}
        return qd_here("admin", "move-blobs", *options, **settings)


@pytest.mark.long
@pytest.mark.usefixtures("s3")
async def test_contents_are_readable_while_they_move_and_after(database_url: str, tmp_path: Path) -> None:
    installed = Installation(database_url, tmp_path)
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
    with serving(database_url, tmp_path / "data", BLOB_STORE_URL=f"file://{installed.old}", **PATIENT) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(database_url, http)
            await installed.fill(world)
    count = len(installed.files())
    assert count == CONTENTS
    settings: dict[str, Any] = installed.settings | PATIENT
    with serving(database_url, tmp_path / "data", **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world.http = http
            await installed.check(world)
            added = await world.new_file("added.txt", b"added")
            installed.expected[f"/v1/files/{added}/content"] = b"added"
            assert len(installed.files()) == count, "new contents are in the new store"

            # Killed at any point: everything can be read, and the next one goes on.
            command = [sys.executable, "-m", "quarterdeck", "admin", "move-blobs", "--concurrency", "1"]
            environ = environment(**installed.settings, DATABASE_URL=database_url)
            killed = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
            assert await until(lambda: killed.poll() is not None or len(installed.files()) < count)
            killed.kill()
            killed.wait()
            await installed.check(world)

            moving = asyncio.create_task(asyncio.to_thread(installed.move, "--json"))
            while not moving.done():
                await installed.check(world)
            done = await moving
            assert done.returncode == 0, done.stderr
            moved = json.loads(done.stdout)
            assert (moved["missing"], moved["damaged"], moved["unknown"]) == ([], [], 0)
            assert moved["present"] + moved["blobs"] == CONTENTS + 1, "the added one was there"
            assert installed.files() == []
            await installed.check(world)
            again = await asyncio.to_thread(installed.move)
            assert again.stdout == f"Moved 0 skill archives and files (0 B). {CONTENTS + 1} were moved before.\n"
    # Another machine, which knows the object store only.
    with serving(database_url, tmp_path / "elsewhere", BLOB_STORE_URL=STORE_URL, **PATIENT) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world.http = http
            await installed.check(world)


@pytest.fixture
def folders(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Settings of a move between two folders."""
    return {
        "DATABASE_URL": database_url,
        "BLOB_STORE_URL": f"file://{tmp_path / 'new'}",
        "BLOB_FALLBACK_STORE_URL": f"file://{tmp_path / 'old'}",
        "SERVER_DATA_DIR": str(tmp_path / "data"),
    }


def move(settings: dict[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    return qd_here("admin", "move-blobs", *options, **settings)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def store(database_url: str, old: Path, content: bytes) -> Path:
    """A content that a file of a session refers to. Returns where it is."""
    sha256 = hashlib.sha256(content)
    generation = uuid4()
    with psycopg.connect(database_url, options="-c search_path=app") as connection:
        values = (sha256.digest(), generation, len(content))
        connection.execute("INSERT INTO blobs (sha256, generation, bytes) VALUES (%s, %s, %s)", values)
        connection.execute("INSERT INTO users (id, email) VALUES (%s, %s)", (generation, f"{generation}@example.com"))
        connection.execute("INSERT INTO workspaces (id, name, owner_id) VALUES (%s, 'w', %s)", (generation, generation))
        connection.execute(
            "INSERT INTO files (id, workspace_id, name, media_type, sha256, bytes, created_by)"
            " VALUES (%s, %s, 'a', 'text/plain', %s, %s, %s)",
            (generation, generation, sha256.digest(), len(content), generation),
        )
    path = old / sha256.hexdigest()[:2] / f"{sha256.hexdigest()}.{generation.hex}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.long
def test_missing_damaged_and_unknown_contents_are_reported_and_left(
    folders: dict[str, str], database_url: str, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    sound, damaged, missing, partial = (store(database_url, old, content) for content in (b"a", b"b", b"c", b"d" * 9))
    damaged.write_bytes(b"x")
    missing.unlink()
    unknown = old / "00" / f"{'00' * 32}.{uuid4().hex}"
    unknown.parent.mkdir(exist_ok=True)
    unknown.write_bytes(b"")
    # A crash left the beginning of it.
    begun = new / partial.relative_to(old)
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"ddd")
    kept = move(folders, "--keep", "--json")
    assert (kept.returncode, json.loads(kept.stdout)["blobs"]) == (1, 2)
    assert names(old) == {sound.name, damaged.name, partial.name, unknown.name}
    done = move(folders)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "Moved 0 skill archives and files (0 B). 2 were moved before.",
        "1 objects of the fallback store are unknown to the database and were left.",
        f"Missing in both stores: {missing.name.partition('.')[0]}",
        f"Damaged, not moved: {damaged.name.partition('.')[0]}",
    ]
    assert names(old) == {damaged.name, unknown.name}
    assert names(new) == {sound.name, partial.name}
    assert begun.read_bytes() == b"d" * 9


def test_a_store_is_not_moved_onto_itself(folders: dict[str, str], database_url: str, tmp_path: Path) -> None:
    path = store(database_url, tmp_path / "old", b"a")
    (tmp_path / "new").symlink_to(tmp_path / "old")
    done = move(folders)
    assert (done.returncode, done.stdout, "name the same store" in done.stderr) == (2, "", True)
    assert names(tmp_path / "old") == {path.name}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"BLOB_FALLBACK_STORE_URL": ""}, "Set QUARTERDECK_BLOB_FALLBACK_STORE_URL"),
        ({"BLOB_FALLBACK_STORE_URL": "nope://x"}, "QUARTERDECK_BLOB_FALLBACK_STORE_URL names no store"),
        ({"BLOB_STORE_URL": STORE_URL}, "Run the command again to continue."),
    ],
)
def test_what_cannot_be_moved_is_one_line(
    folders: dict[str, str], changed: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    done = move(folders | changed)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
