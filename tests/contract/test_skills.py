"""Skills: read, listed, named, deleted, archived."""

import asyncio

import pytest

from tests.contract.skill_requests import audited, change, skill_of, walk, with_versions
from tests.world import Server, World, bundle, error_of

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
