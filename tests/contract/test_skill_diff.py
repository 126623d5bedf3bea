"""Comparing two versions of a skill."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.skill_requests import with_versions
from tests.world import World, bundle, error_of, serving


async def diff(world: World, skill_id: str, base: int, head: int) -> dict[str, Any]:
    answer = await world.get(f"/v1/skills/{skill_id}/diff?base={base}&head={head}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert (body["base"], body["head"]) == (base, head)
    return body


async def test_diff_lists_added_removed_and_changed_files(world: World) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, bundle(**{"gone.txt": "x\n", "same.txt": "s\n", "run.sh": "echo hi\n", "b.bin": "\0"}))
    await world.push(skill_id, bundle(**{"new.txt": "n", "same.txt": "s\n", "run.sh": "echo ho\n", "b.bin": "\0\0"}))
    found = await diff(world, skill_id, 1, 2)
    assert not found["truncated"]
    plain = {"executable_changed": False, "why_no_diff": None}
    assert found["files"] == [
        {
            "path": "b.bin", "change": "changed", "base_bytes": 1, "head_bytes": 2,
            "executable_changed": False, "diff": None, "why_no_diff": "binary",
        },
        {
            "path": "gone.txt", "change": "removed", "base_bytes": 2, "head_bytes": None,
            "diff": "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        } | plain,
        {
            "path": "new.txt", "change": "added", "base_bytes": None, "head_bytes": 1,
            "diff": "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n",
        } | plain,
        {
            "path": "run.sh", "change": "changed", "base_bytes": 8, "head_bytes": 8,
            "diff": "--- a/run.sh\n+++ b/run.sh\n@@ -1 +1 @@\n-echo hi\n+echo ho\n",
        } | plain,
    ]  # fmt: skip
    back = await diff(world, skill_id, 2, 1)
    assert [file["change"] for file in back["files"]] == ["changed", "added", "removed", "changed"]
    assert (await diff(world, skill_id, 1, 1))["files"] == []


async def test_a_file_that_became_executable_differs_though_no_line_does(world: World) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, _script(0o644))
    await world.push(skill_id, _script(0o755))
    (found,) = (await diff(world, skill_id, 1, 2))["files"]
    assert (found["path"], found["change"], found["executable_changed"]) == ("run.sh", "changed", True)
    assert (found["diff"], found["why_no_diff"]) == ("", None)


def _script(mode: int) -> bytes:
    raw = io.BytesIO(gzip.decompress(bundle()))
    with tarfile.open(fileobj=raw, mode="a") as tar:
        member = tarfile.TarInfo("run.sh")
        member.size, member.mode = 3, mode
        tar.addfile(member, io.BytesIO(b"ls\n"))
    return gzip.compress(raw.getvalue(), mtime=0)


async def test_versions_of_the_same_files_do_not_differ_whatever_packed_them(world: World) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, bundle(a="1", b="2"))
    await world.push(skill_id, bundle(b="2", a="1"))
    assert (await diff(world, skill_id, 1, 2))["files"] == []


@pytest.mark.long
async def test_a_diff_is_bounded(database_url: str, tmp_path: Path) -> None:
    settings = {"BUNDLE_DIFF_FILES": 3, "BUNDLE_DIFF_FILE_BYTES": 100, "BUNDLE_DIFF_BYTES": 150}
    with serving(database_url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            skill_id = await world.new_skill()
            await world.push(skill_id, bundle())
            await world.push(skill_id, bundle(a="x" * 101, b="x" * 99, c="x" * 99, d="x"))
            found = await diff(world, skill_id, 1, 2)
    assert found["truncated"]
    assert [file["path"] for file in found["files"]] == ["a", "b", "c"]
    assert [file["why_no_diff"] for file in found["files"]] == ["too_large", None, "too_large"]


@pytest.mark.parametrize("query", ["", "base=1", "head=1", "base=1&head=0", "base=1&head=x", "base=1&base=1&head=1"])
async def test_a_diff_needs_two_numbers(world: World, query: str) -> None:
    skill_id = await with_versions(world, 1)
    assert error_of(await world.get(f"/v1/skills/{skill_id}/diff?{query}")) == (400, "invalid_request")


async def test_a_diff_with_a_version_that_is_not_there_is_404(world: World) -> None:
    skill_id = await with_versions(world, 1)
    for query in ("base=1&head=2", "base=2&head=1"):
        assert error_of(await world.get(f"/v1/skills/{skill_id}/diff?{query}")) == (404, "not_found")
