"""POST /v1/api-keys/{api_key_id}/rotate, and how long keys may live."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.core.errors import ServiceError
from tests.world import EVERY_PERMISSION, World, error_of

DAY = 24 * 3600


async def made(world: World, **asked: Any) -> dict[str, Any]:
    answer = await world.post("/v1/api-keys", {"label": "ci", "permissions": ["workspace.read"]} | asked)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def rotated(world: World, key: dict[str, Any], **asked: Any) -> dict[str, Any]:
    answer = await world.post(f"/v1/api-keys/{key['id']}/rotate", asked)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def shown(world: World, key: dict[str, Any]) -> dict[str, Any]:
    answer = await world.get(f"/v1/api-keys/{key['id']}")
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


async def works(world: World, secret: str) -> bool:
    return (await world.list_keys(key=secret)).status_code == 200


async def test_a_key_is_shown_as_it_is_listed(world: World) -> None:
    created = await made(world)
    listed = {item["id"]: item for item in (await world.list_keys()).json()["items"]}
    assert await shown(world, created) == listed[created["id"]]


async def test_the_new_key_is_like_the_old_one_and_both_work_for_the_overlap(world: World) -> None:
    end = (datetime.now(UTC) + timedelta(days=90)).isoformat()
    old = await made(world, expires_at=end)
    before = datetime.now(UTC)
    new = await rotated(world, old, overlap_seconds=DAY)
    assert new["id"] != old["id"]
    assert new["secret"] != old["secret"]
    for field in ("label", "permissions", "expires_at"):
        assert new[field] == old[field]
    assert await works(world, old["secret"])
    assert await works(world, new["secret"])
    record = await shown(world, old)
    assert record["revoked_at"] is None
    left = datetime.fromisoformat(record["expires_at"]) - before
    assert timedelta(seconds=DAY) <= left < timedelta(seconds=DAY + 60)
    await world.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = %s", old["id"])
    assert error_of(await world.list_keys(key=old["secret"])) == (401, "unauthorized")
    assert await works(world, new["secret"])


async def test_without_an_overlap_the_old_key_and_its_tokens_end_at_once(world: World) -> None:
    old = await made(world, permissions=["workspace.read", "session.manage"])
    session_id = await world.new_session()
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=old["secret"])).json()["token"]
    assert (await world.submit(session_id, key=token)).status_code == 200
    new = await rotated(world, old, overlap_seconds=0)
    assert not await works(world, old["secret"])
    assert error_of(await world.submit(session_id, key=token)) == (401, "unauthorized")
    assert await works(world, new["secret"])
    assert (await shown(world, old))["revoked_at"] is not None


async def test_the_usual_overlap_is_a_day_and_tokens_outlive_it(world: World) -> None:
    old = await made(world, permissions=["workspace.read", "session.manage"])
    session_id = await world.new_session()
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=old["secret"])).json()["token"]
    await rotated(world, old)
    left = datetime.fromisoformat((await shown(world, old))["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    await world.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = %s", old["id"])
    assert (await world.submit(session_id, key=token)).status_code == 200
    await world.post(f"/v1/api-keys/{old['id']}/revoke", None)
    assert error_of(await world.submit(session_id, key=token)) == (401, "unauthorized")


async def test_an_overlap_does_not_lengthen_a_life(world: World) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    old = await made(world, expires_at=end.isoformat())
    new = await rotated(world, old, overlap_seconds=7 * DAY)
    record = await shown(world, old)
    assert record["expires_at"] == old["expires_at"] == new["expires_at"]


@pytest.mark.parametrize("overlap", [-1, 7 * DAY + 1, "1", 1.5, None, True])
async def test_bad_overlaps_are_400_and_change_nothing(world: World, overlap: object) -> None:
    old = await made(world)
    answer = await world.post(f"/v1/api-keys/{old['id']}/rotate", {"overlap_seconds": overlap})
    assert error_of(answer) == (400, "invalid_request")
    assert (await shown(world, old))["expires_at"] is None
    assert (await rotated(world, old, overlap_seconds=7 * DAY))["label"] == "ci"


async def test_a_key_is_rotated_once_and_its_successor_next(world: World) -> None:
    first = await made(world)
    second = await rotated(world, first)
    assert error_of(await world.post(f"/v1/api-keys/{first['id']}/rotate", {})) == (409, "conflict")
    third = await rotated(world, second)
    lineages = await world.fetch(
        "SELECT DISTINCT lineage_id FROM api_keys WHERE id = ANY(%s)", [first["id"], second["id"], third["id"]]
    )
    assert [str(lineage) for (lineage,) in lineages] == [first["id"]]


async def test_ended_keys_are_not_rotated(world: World) -> None:
    revoked, expired = await made(world), await made(world)
    await world.post(f"/v1/api-keys/{revoked['id']}/revoke", None)
    await world.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = %s", expired["id"])
    for key in (revoked, expired):
        assert error_of(await world.post(f"/v1/api-keys/{key['id']}/rotate", {})) == (409, "conflict")


async def test_concurrent_rotations_create_one_key(world: World) -> None:
    old = await made(world)
    answers = await asyncio.gather(*(world.post(f"/v1/api-keys/{old['id']}/rotate", {}) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    ((count,),) = await world.fetch("SELECT count(*) FROM api_keys WHERE lineage_id = %s", old["id"])
    assert count == 2


async def test_no_key_is_rotated_into_more_than_the_caller_has(world: World) -> None:
    strong = await made(world, permissions=["session.manage"])
    narrow = await world.new_key(Permission.KEY_MANAGE)
    path = f"/v1/api-keys/{strong['id']}/rotate"
    assert error_of(await world.post(path, {}, key=narrow)) == (403, "forbidden")
    brief = await world.new_key(expires_at=datetime.now(UTC) + timedelta(days=1))
    assert error_of(await world.post(path, {}, key=brief)) == (403, "forbidden")
    assert (await shown(world, strong))["expires_at"] is None
    assert (await world.post(path, {})).status_code == 201


async def test_a_key_may_rotate_itself(world: World) -> None:
    secret, key_id = await world.new_key_record(EVERY_PERMISSION, datetime.now(UTC) + timedelta(days=1))
    answer = await world.post(f"/v1/api-keys/{key_id}/rotate", {"overlap_seconds": 0}, key=secret)
    assert answer.status_code == 201
    assert not await works(world, secret)
    assert await works(world, answer.json()["secret"])


async def test_a_receipt_of_the_old_key_is_found_by_the_new_one(world: World) -> None:
    old = await made(world, permissions=["session.manage"])
    again = {"Idempotency-Key": "k"}
    first = await world.post("/v1/sessions", {"title": "once"}, key=old["secret"], headers=again)
    session_id = await world.new_session()
    submitted = await world.submit(session_id, key=old["secret"], idempotency_key="k")
    new = await rotated(world, old)
    second = await world.post("/v1/sessions", {"title": "once"}, key=new["secret"], headers=again)
    assert second.content == first.content
    assert second.headers["idempotency-replayed"] == "true"
    assert (await world.submit(session_id, key=new["secret"], idempotency_key="k")).content == submitted.content


async def test_a_replay_makes_no_third_key_and_holds_no_secret(world: World) -> None:
    old = await made(world)
    path, again = f"/v1/api-keys/{old['id']}/rotate", {"Idempotency-Key": "k"}
    first = await world.post(path, {}, headers=again)
    second = await world.post(path, {}, headers=again)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == {name: value for name, value in first.json().items() if name != "secret"}


# --- the longest life that a workspace allows ---


async def limit_keys(world: World, days: int) -> None:
    await world.execute("UPDATE workspaces SET max_key_days = %s WHERE id = %s", days, world.workspace_id)


async def test_a_workspace_may_set_a_longest_life(world: World) -> None:
    await limit_keys(world, 30)
    soon = (datetime.now(UTC) + timedelta(days=29)).isoformat()
    await made(world, expires_at=soon)
    late = (datetime.now(UTC) + timedelta(days=31)).isoformat()
    for expires_at in (late, None):
        answer = await world.post("/v1/api-keys", {"label": "x", "permissions": [], "expires_at": expires_at})
        assert error_of(answer) == (400, "invalid_request")
        assert "30 days" in answer.json()["error"]["message"]


async def test_a_rotation_heeds_a_longest_life_that_was_set_since(world: World) -> None:
    old = await made(world)
    await limit_keys(world, 30)
    new = await rotated(world, old)
    assert datetime.fromisoformat(new["expires_at"]) <= datetime.now(UTC) + timedelta(days=30)


async def test_operator_obeys_the_longest_life(world: World) -> None:
    await limit_keys(world, 1)
    await world.new_key_record(EVERY_PERMISSION, datetime.now(UTC) + timedelta(hours=23))
    with pytest.raises(ServiceError, match="within 1 days"):
        await world.new_key_record(EVERY_PERMISSION)
