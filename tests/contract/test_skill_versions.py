"""Versions of skills, and the one that sessions use."""

from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.contract.skill_requests import change, walk, with_versions
from tests.workers import ended, log_of, working
from tests.world import World, bundle, error_of, serving

# --- versions ---


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_versions_in_pages_by_number(world: World, order: str) -> None:
    skill_id = await with_versions(world, 5)
    # A process whose clock is behind gave the newest version an id that sorts first.
    early = "00000000-0000-7000-8000-" + uuid4().hex[:12]
    of_skill = "version_id IN (SELECT id FROM skill_versions WHERE skill_id = %s)"
    await world.execute(f"DELETE FROM skill_version_contents WHERE {of_skill}", skill_id)
    await world.execute("UPDATE skill_versions SET id = %s WHERE skill_id = %s AND version = 5", early, skill_id)
    found = await walk(world, f"/v1/skills/{skill_id}/versions", limit=2, order=order)
    numbers = [1, 2, 3, 4, 5]
    assert [one["version"] for one in found] == (numbers if order == "asc" else numbers[::-1])
    fields = {"id", "skill_id", "version", "bundle_bytes", "frontmatter", "created_at", "created_by"}
    assert {frozenset(one) for one in found} == {frozenset(fields)}
    assert {one["frontmatter"]["name"] for one in found} == {f"version-{number}" for number in numbers}


async def test_a_cursor_of_another_skill_is_400(world: World) -> None:
    one, two = await with_versions(world, 2), await with_versions(world, 2)
    foreign = (await world.get(f"/v1/skills/{two}/versions?limit=1")).json()["next_cursor"]
    for order in ("asc", "desc"):
        for cursor in (foreign, uuid4(), one):
            answer = await world.get(f"/v1/skills/{one}/versions?after={cursor}&order={order}")
            assert error_of(answer) == (400, "invalid_request")
    assert (await world.get(f"/v1/skills/{await world.new_skill()}/versions")).json() == {
        "items": [],
        "next_cursor": None,
    }


async def test_a_version_reads_as_the_push_answered(world: World) -> None:
    skill_id = await world.new_skill()
    text = "---\nname: x\ndescription: d\nratio: 1.50\nlist: [1, {b: é, a: .nan}]\n---\n"
    pushed = await world.push(skill_id, bundle(**{"SKILL.md": text, "a/b.txt": "x"}))
    read = await world.get(f"/v1/skills/{skill_id}/versions/1")
    assert (read.status_code, read.content) == (200, pushed.content)
    for number in (2, 999, 2**31 - 1):
        assert error_of(await world.get(f"/v1/skills/{skill_id}/versions/{number}")) == (404, "not_found")
    for bad in ("0", "-1", "+1", "1.0", "latest", "１", str(2**31), "%201"):
        assert error_of(await world.get(f"/v1/skills/{skill_id}/versions/{bad}")) == (400, "invalid_request")


async def test_unknown_version_is_404_before_the_permission_check(world: World) -> None:
    skill_id, key = await with_versions(world, 1), await world.new_key(Permission.SKILL_MANAGE)
    found = ("versions/1", "versions/1/bundle", "versions/1/file?path=SKILL.md", "versions/1/file?path=none")
    for path in (*found, "diff?base=1&head=1"):
        assert error_of(await world.get(f"/v1/skills/{skill_id}/{path}", key=key)) == (403, "forbidden")
    for path in ("versions/2", "versions/2/bundle", "versions/2/file?path=SKILL.md", "diff?base=1&head=2"):
        assert error_of(await world.get(f"/v1/skills/{skill_id}/{path}", key=key)) == (404, "not_found")


# --- the default version ---


async def run_of(world: World, session_id: str) -> str:
    """What the skill's SKILL.md says to the next run: the demo model reads it."""
    run_id = (await world.submit(session_id, "demo: steps 2")).json()["run_id"]
    assert (await ended(world, run_id))["state"] == "succeeded"
    results = [
        entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"
        if entry["run_id"] == run_id
    ]  # fmt: skip
    return str(results)


@pytest.mark.long
async def test_a_roll_back_reaches_the_next_run_without_a_push(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path) as server, working(database_url, tmp_path):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            skill_id = await with_versions(world, 2)
            following = (await world.post("/v1/sessions", {"skills": [{"skill_id": skill_id}]})).json()["id"]
            pinned_to = [{"skill_id": skill_id, "version": 2}]
            pinned = (await world.post("/v1/sessions", {"skills": pinned_to})).json()["id"]
            assert "version-2" in await run_of(world, following)
            await change(world, skill_id, default_version=1)
            assert "version-1" in await run_of(world, following)
            assert "version-2" in await run_of(world, pinned)
            # A push moves no default that was set; archiving takes nothing from those who have it.
            assert (await world.push(skill_id, bundle("version-3"))).status_code == 201
            await change(world, skill_id, archived=True)
            assert "version-1" in await run_of(world, following)
            await change(world, skill_id, default_version=None)
            assert "version-3" in await run_of(world, following)
