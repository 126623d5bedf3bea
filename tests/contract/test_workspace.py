"""GET and PATCH /v1/workspace, GET /v1/members."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.people import members, profiles
from quarterdeck.workspaces import service as workspaces
from tests.world import World, error_of


async def add_member(world: World, email: str | None = None) -> tuple[str, UUID]:
    email = email or f"{uuid4().hex}@example.com"
    async with await world.connect() as connection:
        return email, await members.add_by_operator(connection, world.workspace_id, email)


async def remove_member(world: World, email: str) -> None:
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, email)


async def listed_members(world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await world.get(f"/v1/members{query}")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_the_workspace_of_the_key(world: World) -> None:
    answer = await world.get("/v1/workspace")
    body = answer.json()
    assert answer.status_code == 200
    assert set(body) == {
        *("id", "name", "created_at", "owner", "max_key_days", "limits", "used_today", "revision"),
        *("retention", "effective_retention"),
    }
    assert (body["id"], body["name"], body["max_key_days"]) == (str(world.workspace_id), "Test", None)
    assert set(body["owner"]) == {"user_id", "display_name", "primary_email"}
    assert timedelta() <= datetime.now(UTC) - datetime.fromisoformat(body["created_at"]) < timedelta(minutes=5)
    named = await world.get("/v1/workspace", headers={"Service-Workspace": str(world.workspace_id)})
    assert named.json() == body
    assert error_of(await world.get("/v1/workspace", headers={"Service-Workspace": str(uuid4())}))[0] == 404


async def test_limits_of_a_workspace(world: World) -> None:
    before = await world.get("/v1/workspace")
    assert before.json()["limits"] == {"day": {"max_cost_usd": None, "max_tokens": None}}
    counted = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    assert before.json()["used_today"] == dict.fromkeys(counted, 0) | {"cost_usd": None}
    limits = {"day": {"max_cost_usd": 20.25, "max_tokens": 2**53}}
    changed = await world.patch("/v1/workspace", {"limits": limits}, headers={"If-Match": before.headers["etag"]})
    assert changed.status_code == 200, changed.text
    assert changed.json() == before.json() | {"limits": limits, "revision": 2}
    again = await world.patch("/v1/workspace", {"limits": limits})
    assert (again.json(), again.headers["etag"]) == (changed.json(), '"2"'), "nothing changed"
    assert (await world.patch("/v1/workspace", {})).json() == changed.json()
    stale = await world.patch("/v1/workspace", {"limits": {}}, headers={"If-Match": before.headers["etag"]})
    assert error_of(stale) == (412, "precondition_failed")
    assert (await world.patch("/v1/workspace", {"limits": {"day": {}}})).json() == changed.json()
    lowered = await world.patch("/v1/workspace", {"limits": {"day": {"max_tokens": 5}}})
    assert lowered.json()["limits"] == {"day": {"max_cost_usd": 20.25, "max_tokens": 5}}
    removed = await world.patch("/v1/workspace", {"limits": {"day": {"max_cost_usd": None}}})
    assert removed.json()["limits"] == {"day": {"max_cost_usd": None, "max_tokens": 5}}
    events = (await world.get("/v1/audit-events?action=change_workspace&order=asc")).json()["items"]
    steps = (changed, lowered, removed)
    assert [event["detail"] for event in events] == [{"limits": one.json()["limits"]} for one in steps]
    assert {event["object_name"] for event in events} == {"Test"}
    wrong_days: tuple[dict[str, Any], ...] = (
        {"max_cost_usd": 0},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"tokens": 1},
    )
    wrong: dict[str, Any] | None
    for wrong in (*({"day": day} for day in wrong_days), {"week": {}}, None):
        assert error_of(await world.patch("/v1/workspace", {"limits": wrong}))[0] == 400


async def test_retention_of_a_workspace(world: World) -> None:
    """The settings of the server are defaults. Events do not outlive their runs."""
    before = await world.get("/v1/workspace")
    kinds = ("run_days", "event_days", "file_days", "receipt_days", "audit_days", "delivery_days")
    nothing = dict.fromkeys((*kinds, "usage_days"))
    defaults = nothing | {"receipt_days": 7, "audit_days": 365, "delivery_days": 30}
    assert before.json()["retention"] == nothing
    assert before.json()["effective_retention"] == defaults

    chosen = {"run_days": 90, "audit_days": 700, "receipt_days": 14}
    changed = await world.patch("/v1/workspace", {"retention": chosen})
    assert changed.status_code == 200, changed.text
    assert changed.json() == before.json() | {
        "retention": nothing | chosen,
        "effective_retention": defaults | chosen | {"event_days": 90},
        "revision": 2,
    }
    more = {"event_days": 365, "file_days": 1, "run_days": None, "audit_days": None}
    again = await world.patch("/v1/workspace", {"retention": more, "limits": {"day": {"max_tokens": 5}}})
    assert again.json()["retention"] == nothing | chosen | more
    assert again.json()["effective_retention"] == defaults | {"event_days": 365, "file_days": 1, "receipt_days": 14}
    assert again.json()["limits"] == {"day": {"max_cost_usd": None, "max_tokens": 5}}
    assert (await world.patch("/v1/workspace", {"retention": {"file_days": 1}})).json() == again.json()
    events = (await world.get("/v1/audit-events?action=change_workspace&order=asc")).json()["items"]
    assert [event["detail"]["retention"] for event in events] == [
        chosen,
        {"receipt_days": 14, "event_days": 365, "file_days": 1},
    ]
    for wrong in ({"run_days": 0}, {"run_days": 3651}, {"run_days": "1"}, {"receipt_days": 6}, {"skill_days": 1}, None):
        assert error_of(await world.patch("/v1/workspace", {"retention": wrong})) == (400, "invalid_request")
    shorter = await world.patch("/v1/workspace", {"retention": {"audit_days": 364}})
    assert error_of(shorter) == (400, "invalid_request"), "managers cannot remove what they did"
    assert "365" in shorter.json()["error"]["message"]
    assert (await world.get("/v1/workspace")).json() == again.json()


async def test_who_may_let_conversations_expire(world: World) -> None:
    """A retention of one day deletes nearly all conversations: `key.manage` alone must not be enough."""
    permissions = (Permission.WORKSPACE_READ, Permission.KEY_MANAGE)
    key = await world.new_key(*permissions)
    kept = {"run_days": 3650, "event_days": 90, "file_days": 90}
    before = (await world.patch("/v1/workspace", {"retention": kept})).json()
    for kind in kept:
        for days in (1, None):
            refused = await world.patch("/v1/workspace", {"retention": {kind: days, "receipt_days": 8}}, key=key)
            assert error_of(refused) == (403, "forbidden")
            assert "session.manage" in refused.text
    assert (await world.get("/v1/workspace")).json() == before
    changed = await world.patch("/v1/workspace", {"retention": kept | {"delivery_days": 3}}, key=key)
    assert changed.json()["retention"] == before["retention"] | {"delivery_days": 3}, "these three stay as they are"
    both = await world.new_key(*permissions, Permission.SESSION_MANAGE)
    assert (await world.patch("/v1/workspace", {"retention": {"run_days": None}}, key=both)).status_code == 200


async def test_a_changed_workspace(world: World) -> None:
    email, user_id = await add_member(world)
    async with await world.connect() as connection:
        await profiles.name_by_operator(connection, email, "Ann")
        await workspaces.configure_workspace(
            connection, world.workspace_id, name="Crew", max_key_days=30, owner_email=email
        )
    body = (await world.get("/v1/workspace")).json()
    assert (body["name"], body["max_key_days"]) == ("Crew", 30)
    assert body["owner"] == {"user_id": str(user_id), "display_name": "Ann", "primary_email": email}
    roles = {member["user"]["user_id"]: member["role"] for member in await listed_members(world)}
    assert sorted(roles.values()) == ["admin", "owner"]
    assert roles[str(user_id)] == "owner"


async def test_members_can_leave_and_return(world: World) -> None:
    email, user_id = await add_member(world)

    async def one() -> dict[str, Any]:
        (found,) = [member for member in await listed_members(world) if member["user"]["user_id"] == str(user_id)]
        return found

    joined = await one()
    assert set(joined) == {"user", "role", "joined_at", "ended_at"}
    assert (joined["role"], joined["ended_at"]) == ("member", None)
    assert joined["user"] == {"user_id": str(user_id), "display_name": None, "primary_email": email}
    await add_member(world, email)
    assert await one() == joined, "who is a member already joined then"
    await remove_member(world, email)
    left = await one()
    assert left == joined | {"ended_at": left["ended_at"]}
    assert left["ended_at"] > left["joined_at"]
    await remove_member(world, email)
    assert await one() == left, "who has left already left then"
    await add_member(world, email)
    back = await one()
    assert back["ended_at"] is None
    assert back["joined_at"] > left["ended_at"]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 4, 10, 11, 200])
async def test_every_member_is_listed_once(world: World, order: str, limit: int) -> None:
    ((owner_id,),) = await world.fetch("SELECT owner_id FROM workspaces WHERE id = %s", world.workspace_id)
    everybody = sorted([str(owner_id), *[str((await add_member(world))[1]) for _ in range(10)]])
    found: list[str] = []
    cursor = ""
    while True:
        page = (await world.get(f"/v1/members?order={order}&limit={limit}{cursor}")).json()
        found += [member["user"]["user_id"] for member in page["items"]]
        if page["next_cursor"] is None:
            break
        assert page["next_cursor"] == found[-1]
        cursor = f"&after={page['next_cursor']}"
    assert found == sorted(everybody, reverse=order == "desc")


async def test_a_cursor_of_another_list_is_400(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    (theirs,) = await listed_members(other)
    for cursor in (theirs["user"]["user_id"], str(uuid4())):
        assert error_of(await world.get(f"/v1/members?after={cursor}")) == (400, "invalid_request")
