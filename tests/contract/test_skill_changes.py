"""Changes of skills and their preconditions."""

import asyncio
from datetime import datetime

import pytest

from quarterdeck.core.actors import Permission
from tests.contract.skill_requests import audited, change, skill_of, with_versions
from tests.world import World, bundle, error_of

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
    for body in ({}, {"archived": True}, {"name": before["name"], "default_version": 1}):
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
