"""Skills and their versions: read, changed, rolled back, archived, compared."""

import asyncio
import gzip
import io
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.workers import ended, log_of, working
from tests.world import Server, World, bundle, error_of, serving


async def skill_of(world: World, skill_id: str) -> dict[str, Any]:
    answer = await world.get(f"/v1/skills/{skill_id}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{body["revision"]}"'
    return body


async def change(world: World, skill_id: str, **body: Any) -> dict[str, Any]:
    answer = await world.patch(f"/v1/skills/{skill_id}", body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{changed["revision"]}"'
    return changed


async def with_versions(world: World, count: int) -> str:
    skill_id = await world.new_skill()
    for number in range(1, count + 1):
        assert (await world.push(skill_id, bundle(f"version-{number}"))).status_code == 201
    return skill_id


async def audited(world: World, skill_id: str) -> list[tuple[Any, ...]]:
    query = "SELECT action, object_type, detail FROM audit_events WHERE object_id = %s ORDER BY id"
    return await world.fetch(query, skill_id)


# --- get ---


async def test_a_new_skill_reads_as_it_was_created(world: World) -> None:
    created = await world.post("/v1/skills", {"name": "Report writer"})
    body = created.json()
    assert created.headers["etag"] == '"1"'
    assert (body["latest_version"], body["default_version"], body["archived_at"]) == (None, None, None)
    assert body["created_by"]["primary_email"].endswith("@example.com")
    assert await skill_of(world, body["id"]) == body


async def test_a_caller_that_has_it_is_told_so(world: World) -> None:
    skill_id = await world.new_skill()
    known = await world.get(f"/v1/skills/{skill_id}", headers={"If-None-Match": '"1"'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", '"1"')
    await world.push(skill_id, bundle())
    assert (await world.get(f"/v1/skills/{skill_id}", headers={"If-None-Match": '"1"'})).json()["latest_version"] == 1


# --- list ---


async def walk(world: World, path: str, **query: str | int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: dict[str, str | int] = {}
    while True:
        answer = await world.http.get(path, params=query | after, headers=world.headers())
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        if answer.json()["next_cursor"] is None:
            return found
        after = {"after": answer.json()["next_cursor"]}


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_skills_in_pages(world: World, order: str) -> None:
    ids = [await world.new_skill() for _ in range(5)]
    await change(world, ids[1], archived=True)
    await change(world, ids[3], archived=True)
    alive, archived = [ids[0], ids[2], ids[4]], [ids[1], ids[3]]
    for given, expected in (({}, alive), ({"archived": "false"}, alive), ({"archived": "true"}, archived)):
        found = await walk(world, "/v1/skills", limit=1, order=order, **given)
        assert [one["id"] for one in found] == (expected if order == "asc" else expected[::-1])
        assert found == [await skill_of(world, one["id"]) for one in found]


async def test_paging_continues_after_its_cursor_is_deleted_or_archived(world: World) -> None:
    ids = [await world.new_skill() for _ in range(4)]
    first = (await world.get("/v1/skills?limit=1")).json()
    assert first["next_cursor"] == ids[3]
    await change(world, ids[3], archived=True)
    second = (await world.get(f"/v1/skills?limit=1&after={ids[3]}")).json()
    assert ([one["id"] for one in second["items"]], second["next_cursor"]) == ([ids[2]], ids[2])
    assert (await world.delete(f"/v1/skills/{ids[2]}")).status_code == 204
    for order, expected in (("desc", [ids[1]]), ("asc", [])):
        page = (await world.get(f"/v1/skills?limit=1&order={order}&after={ids[2]}")).json()
        assert [one["id"] for one in page["items"]] == expected
    for value in ("yes", "1", "", "True"):
        assert error_of(await world.get(f"/v1/skills?archived={value}")) == (400, "invalid_request")


async def test_a_list_shows_the_description_of_the_version_in_use(world: World) -> None:
    skill_id = await world.new_skill()
    assert (await skill_of(world, skill_id))["description"] is None
    for text in ("first", "|\n  second\n  line\n"):
        skill_md = f"---\nname: x\ndescription: {text}\n---\n"
        assert (await world.push(skill_id, bundle(**{"SKILL.md": skill_md}))).status_code == 201
    assert (await skill_of(world, skill_id))["description"] == "second\nline"
    assert (await change(world, skill_id, default_version=1))["description"] == "first"
    (listed,) = (await world.get("/v1/skills")).json()["items"]
    assert listed["description"] == "first"


# --- unique names ---


async def test_names_are_unique_among_active_skills(world: World, server: Server) -> None:
    created = await world.post("/v1/skills", {"name": "one"})
    one, two = created.json()["id"], await world.new_skill()
    # Names are compared exactly, and other workspaces have names of their own.
    assert (await world.post("/v1/skills", {"name": "One"})).status_code == 201
    other = await World.create(server.database_url, world.http)
    assert (await other.post("/v1/skills", {"name": "one"})).status_code == 201

    refused = await world.post("/v1/skills", {"name": "one"}, headers={"Idempotency-Key": "k"})
    assert error_of(refused) == (409, "conflict")
    assert refused.json()["error"]["message"] == "A skill with this name already exists."
    assert "retry-after" not in refused.headers
    assert error_of(await world.patch(f"/v1/skills/{two}", {"name": "one"})) == (409, "conflict")
    assert error_of(await world.patch(f"/v1/skills/{two}", {"name": "one"}, headers={"If-Match": '"9"'}))[0] == 412

    # The name of an archived skill is free, and an archived skill needs a free one to come back.
    await change(world, one, archived=True)
    await change(world, two, name="one")
    assert error_of(await world.patch(f"/v1/skills/{one}", {"archived": False})) == (409, "conflict")
    assert (await change(world, one, name="one", default_version=None))["archived_at"] is not None
    back = await change(world, one, archived=False, name="back")
    assert (back["name"], back["archived_at"]) == ("back", None)
    # A refusal does not use up its key.
    await change(world, two, name="two")
    again = await world.post("/v1/skills", {"name": "one"}, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201


async def test_of_concurrent_skills_with_one_name_one_is_created(world: World) -> None:
    for number in range(5):
        name = {"name": f"name-{number}"}
        archived = (await world.post("/v1/skills", name)).json()["id"]
        await change(world, archived, archived=True)
        renamed = await world.new_skill()
        answers = await asyncio.gather(
            *(world.post("/v1/skills", name) for _ in range(4)),
            world.patch(f"/v1/skills/{renamed}", name),
            world.patch(f"/v1/skills/{archived}", {"archived": False}),
        )
        assert sorted(answer.status_code // 100 for answer in answers) == [2, 4, 4, 4, 4, 4]
        assert {error_of(answer) for answer in answers if answer.is_error} == {(409, "conflict")}
        active = (await world.get("/v1/skills?limit=200")).json()["items"]
        assert sum(one["name"] == name["name"] for one in active) == 1


# --- delete ---


async def test_a_skill_that_no_session_uses_is_deleted_with_its_versions(world: World) -> None:
    skill_id = await with_versions(world, 2)
    await change(world, skill_id, default_version=1, name="leaving")
    path = f"/v1/skills/{skill_id}"
    body = {"skills": [{"skill_id": skill_id, "version": 2}]}
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    await world.patch(f"/v1/sessions/{session_id}", {"archived": True})
    in_use = await world.delete(path)
    assert error_of(in_use) == (409, "conflict")
    assert "used by a session" in in_use.json()["error"]["message"]
    assert (await world.get(f"{path}/versions/1/bundle")).status_code == 200

    await world.patch(f"/v1/sessions/{session_id}", {"archived": False, "skills": []})
    assert error_of(await world.delete(path, headers={"If-Match": '"1"'})) == (412, "precondition_failed")
    deleted = await world.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    for gone in (await world.get(path), await world.delete(path), await world.push(skill_id, bundle())):
        assert error_of(gone) == (404, "not_found")
    assert await world.fetch("SELECT FROM skill_versions WHERE skill_id = %s", skill_id) == []
    assert (await audited(world, skill_id))[-1] == (
        "delete_skill", "skill", {"name": "leaving", "latest_version": 2}
    )  # fmt: skip
    assert error_of(await world.post("/v1/sessions", body)) == (400, "invalid_request")
    assert (await world.post("/v1/skills", {"name": "leaving"})).status_code == 201


async def test_a_skill_is_either_deleted_or_used(world: World) -> None:
    for number in range(10):
        skill_id, session_id = await with_versions(world, 1), await world.new_session()
        wanted = {"skills": [{"skill_id": skill_id, "version": 1 if number % 2 else None}]}
        deleted, created, changed, pushed, renamed = await asyncio.gather(
            world.delete(f"/v1/skills/{skill_id}"),
            world.post("/v1/sessions", wanted),
            world.patch(f"/v1/sessions/{session_id}", wanted),
            world.push(skill_id, bundle("other")),
            world.patch(f"/v1/skills/{skill_id}", {"name": f"renamed-{number}"}),
        )
        is_used = created.status_code == 201 or changed.status_code == 200
        assert (deleted.status_code == 204) != is_used
        assert deleted.status_code in (204, 409)
        for answer, refusal in ((created, 400), (changed, 400), (pushed, 404), (renamed, 404)):
            assert not answer.is_error or error_of(answer)[0] == refusal, answer.text


# --- change ---


async def test_omitted_fields_stay_unchanged(world: World) -> None:
    skill_id = await with_versions(world, 2)
    before = await skill_of(world, skill_id)
    named = await change(world, skill_id, name="Other")
    assert named == before | {"name": "Other", "revision": before["revision"] + 1}
    pinned = await change(world, skill_id, default_version=1)
    assert pinned == named | {"default_version": 1, "revision": named["revision"] + 1}
    archived = await change(world, skill_id, archived=True)
    assert datetime.fromisoformat(archived["archived_at"]).tzinfo is not None
    assert archived | {"archived_at": None} == pinned | {"revision": pinned["revision"] + 1}
    back = await change(world, skill_id, archived=False, default_version=None, name="Third")
    assert back == before | {"name": "Third", "revision": archived["revision"] + 1}
    assert await skill_of(world, skill_id) == back


async def test_a_change_that_changes_nothing_leaves_no_trace(world: World) -> None:
    skill_id = await with_versions(world, 1)
    await change(world, skill_id, archived=True, default_version=1)
    before, told = await skill_of(world, skill_id), await audited(world, skill_id)
    for body in ({}, {"archived": True}, {"name": before["name"], "default_version": 1}, {"unknown": 1}):
        assert await change(world, skill_id, **body) == before
    assert await audited(world, skill_id) == told
    assert [entry[:2] for entry in told] == [("create_skill", "skill"), ("change_skill", "skill")]
    assert told[1][2] == {"archived": True, "default_version": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"name": None},
        {"name": ""},
        {"name": "two\nlines"},
        {"archived": None},
        {"archived": "true"},
        {"archived": 1},
        {"default_version": 0},
        {"default_version": 3},
        {"default_version": 2**31},
        {"default_version": "1"},
        {"default_version": 1.5},
        [],
        None,
    ],
    ids=repr,
)
async def test_a_bad_change_is_400_and_changes_nothing(world: World, body: object) -> None:
    skill_id = await with_versions(world, 2)
    before = await skill_of(world, skill_id)
    assert error_of(await world.patch(f"/v1/skills/{skill_id}", body)) == (400, "invalid_request")
    assert await skill_of(world, skill_id) == before


async def test_the_order_of_checks_of_a_change(world: World) -> None:
    skill_id, reader = await with_versions(world, 1), await world.new_key(Permission.WORKSPACE_READ)
    path, stale = f"/v1/skills/{skill_id}", {"If-Match": '"1"'}
    assert error_of(await world.patch(path, [], key=reader, headers={"If-Match": "junk"})) == (400, "invalid_request")
    assert error_of(await world.patch(path, [], key=reader, headers=stale)) == (403, "forbidden")
    assert error_of(await world.patch(path, [], headers=stale)) == (400, "invalid_request")
    # A version that is not there is a matter of the state, which comes after the precondition.
    assert error_of(await world.patch(path, {"default_version": 9}, headers=stale)) == (412, "precondition_failed")
    assert error_of(await world.patch(path, {"default_version": 9})) == (400, "invalid_request")


async def test_a_repeated_change_takes_effect_once(world: World) -> None:
    skill_id, key = await world.new_skill(), {"Idempotency-Key": "k", "If-Match": '"1"'}
    path = f"/v1/skills/{skill_id}"
    first = await world.patch(path, {"name": "a"}, headers=key)
    await change(world, skill_id, name="b")
    again = await world.patch(path, {"name": "a"}, headers=key)
    assert (again.content, again.headers["etag"]) == (first.content, '"2"')
    assert again.headers["idempotency-replayed"] == "true"
    assert (await skill_of(world, skill_id))["name"] == "b"
    assert error_of(await world.patch(path, {"name": None}, headers=key)) == (400, "invalid_request")
    # null and nothing are two wishes.
    other = {"Idempotency-Key": "other"}
    assert (await world.patch(path, {"default_version": None}, headers=other)).status_code == 200
    assert error_of(await world.patch(path, {}, headers=other)) == (409, "conflict")


# --- preconditions ---


async def test_of_two_changes_with_one_etag_one_is_late(world: World) -> None:
    for _ in range(10):
        skill_id = await world.new_skill()
        answers = await asyncio.gather(
            *(
                world.patch(f"/v1/skills/{skill_id}", {"name": f"{name}{skill_id}"}, headers={"If-Match": '"1"'})
                for name in ("a", "b", "c", "d")
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]
        (won,) = (answer.json() for answer in answers if answer.status_code == 200)
        assert await skill_of(world, skill_id) == won
        assert won["revision"] == 2


async def test_of_a_push_and_a_change_with_one_etag_one_is_late(world: World) -> None:
    outcomes = set()
    for _ in range(10):
        skill_id, same = await world.new_skill(), {"If-Match": '"1"'}
        pushed, changed = await asyncio.gather(
            world.push(skill_id, bundle(), headers=same),
            world.patch(f"/v1/skills/{skill_id}", {"name": skill_id}, headers=same),
        )
        outcomes.add((pushed.status_code, changed.status_code))
        skill = await skill_of(world, skill_id)
        assert skill["revision"] == 2
        assert (skill["latest_version"] == 1) == (pushed.status_code == 201)
        assert (skill["name"] == skill_id) == (changed.status_code == 200)
    assert outcomes <= {(201, 412), (412, 200)}


async def test_if_match_takes_lists_and_the_star(world: World) -> None:
    skill_id = await world.new_skill()
    path = f"/v1/skills/{skill_id}"
    for number, tags in enumerate(['"1"', '"9", "2"', "*"]):
        answer = await world.patch(path, {"name": f"name {number}"}, headers={"If-Match": tags})
        assert answer.status_code == 200
    for tags in ('W/"4"', '"9"', '"04"'):
        late = await world.patch(path, {"name": "x"}, headers={"If-Match": tags})
        assert error_of(late) == (412, "precondition_failed")
    assert error_of(await world.patch(path, {"name": "x"}, headers={"If-Match": "4"})) == (400, "invalid_request")


# --- archived ---


async def test_an_archived_skill_takes_no_versions_and_no_sessions(world: World) -> None:
    skill_id = await with_versions(world, 1)
    key = {"Idempotency-Key": "k"}
    pushed = await world.push(skill_id, bundle("second"), headers=key)
    archived = await change(world, skill_id, archived=True)
    refused = await world.push(skill_id, bundle("third"))
    assert error_of(refused) == (409, "conflict")
    assert "retry-after" not in refused.headers
    # A receipt wins over the state, and so does a precondition.
    assert (await world.push(skill_id, bundle("second"), headers=key)).content == pushed.content
    assert error_of(await world.push(skill_id, bundle("third"), headers={"If-Match": '"1"'}))[0] == 412
    for version in (None, 1):
        skills = [{"skill_id": skill_id, "version": version}]
        answer = await world.post("/v1/sessions", {"skills": skills})
        assert error_of(answer) == (400, "invalid_request")
        assert "archived" in answer.json()["error"]["message"]
    assert await skill_of(world, skill_id) == archived
    assert (await world.get(f"/v1/skills/{skill_id}/versions/2")).status_code == 200
    await change(world, skill_id, archived=False)
    assert (await world.push(skill_id, bundle("third"))).json()["version"] == 3
    assert (await world.post("/v1/sessions", {"skills": [{"skill_id": skill_id}]})).status_code == 201


# --- versions ---


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_versions_in_pages_by_number(world: World, order: str) -> None:
    skill_id = await with_versions(world, 5)
    # A process whose clock is behind gave the newest version an id that sorts first.
    early = "00000000-0000-7000-8000-" + uuid4().hex[:12]
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
    for path in ("versions/1", "versions/1/bundle", "versions/1/file?path=SKILL.md", "diff?base=1&head=1"):
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


# --- comparing ---


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
