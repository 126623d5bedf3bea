"""Members: list, change the role, remove, leave."""

import asyncio
from typing import Any

from quarterdeck.core.actors import Permission, Role
from quarterdeck.people import members
from tests.people import Browser, Person, answer_after, new_email
from tests.world import World, error_of


async def roles(world: World) -> dict[str, str]:
    """Of current members, by email address."""
    items: list[dict[str, Any]] = (await world.get("/v1/members?limit=200")).json()["items"]
    return {one["user"]["primary_email"]: one["role"] for one in items if one["ended_at"] is None}


async def test_an_admin_changes_a_role(world: World) -> None:
    admin, ann = await Person.join(world, Role.ADMIN), await Person.join(world, Role.VIEWER)
    ann_id = await ann.id()
    assert error_of(await ann.post("/v1/sessions", {})) == (403, "forbidden")
    answer = await admin.request("PATCH", f"/v1/members/{ann_id}", {"role": "member"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["role"], answer.json()["user"]["user_id"]) == ("member", ann_id)
    assert (await ann.post("/v1/sessions", {})).status_code == 201
    again = await admin.request("PATCH", f"/v1/members/{ann_id}", {"role": "member"})
    assert again.json() == answer.json()
    events = (await world.get(f"/v1/audit-events?object_id={ann_id}&action=change_member")).json()["items"]
    assert [event["detail"] for event in events] == [{"email": ann.email, "role": "member", "before": "viewer"}]
    assert (events[0]["actor"]["primary_email"], events[0]["api_key_id"]) == (admin.email, None)
    assert events[0]["device_id"] is not None


async def test_a_role_limits_keys_and_tokens_at_once(world: World) -> None:
    """Both directions: a key has no more than it was given, and no more than the role."""
    ann = await Person.join(world, Role.ADMIN)
    key = (await ann.post("/v1/api-keys", {"label": "x", "permissions": list(Permission)})).json()["secret"]
    session_id = (await ann.post("/v1/sessions", {})).json()["id"]
    token = (await ann.post(f"/v1/sessions/{session_id}/tokens", {})).json()["token"]
    owner = await Person.join(world, Role.OWNER)
    allowed = {
        Role.MEMBER: {"workspace.read", "session.manage", "action.resolve", "skill.manage", "agent.manage"},
        Role.VIEWER: {"workspace.read"},
        Role.ADMIN: set(Permission),
        Role.OWNER: set(Permission),
    }
    for role, permissions in allowed.items():
        changed = await owner.request("PATCH", f"/v1/members/{await ann.id()}", {"role": role})
        assert changed.status_code == 200, changed.text
        for found in (await world.get("/v1/whoami", key=key), await ann.get("/v1/whoami")):
            assert (found.json()["role"], set(found.json()["permissions"])) == (role, permissions)
        submitted = await world.submit(session_id, key=token)
        assert submitted.status_code == (401 if role is Role.VIEWER else 200)
        assert (await world.submit(session_id, key=key)).status_code == (403 if role is Role.VIEWER else 200)


async def test_a_key_of_an_admin_keeps_its_own_permissions(world: World) -> None:
    ann = await Person.join(world, Role.ADMIN)
    made = await ann.post("/v1/api-keys", {"label": "x", "permissions": ["skill.manage", "workspace.read"]})
    await world.execute("UPDATE members SET role = 'member' WHERE user_id::text = %s", await ann.id())
    found = (await world.get("/v1/whoami", key=made.json()["secret"])).json()
    assert found["permissions"] == ["workspace.read", "skill.manage"]


async def test_only_owners_deal_with_owners(world: World) -> None:
    admin, owner, ann = [await Person.join(world, role) for role in (Role.ADMIN, Role.OWNER, Role.MEMBER)]
    for path, method, body in (
        (f"/v1/members/{await ann.id()}", "PATCH", {"role": "owner"}),
        (f"/v1/members/{await owner.id()}", "PATCH", {"role": "member"}),
        (f"/v1/members/{await owner.id()}", "DELETE", None),
        (f"/v1/members/{await admin.id()}", "PATCH", {"role": "owner"}),
    ):
        assert error_of(await admin.request(method, path, body)) == (403, "forbidden"), path
    assert (await owner.request("PATCH", f"/v1/members/{await ann.id()}", {"role": "owner"})).status_code == 200
    assert (await owner.request("DELETE", f"/v1/members/{await ann.id()}")).status_code == 204


async def test_a_key_gives_no_role_beyond_its_permissions(world: World) -> None:
    """Else its holder could invite themselves and do all that its owner may."""
    ann = f"/v1/members/{await (await Person.join(world, Role.VIEWER)).id()}"
    narrow = await world.new_key(Permission.MEMBER_MANAGE, Permission.WORKSPACE_READ)
    wide = await world.new_key(*(one for one in Permission if one is not Permission.CREDENTIAL_MANAGE))
    for key, allowed in ((narrow, {Role.VIEWER}), (wide, {Role.VIEWER, Role.MEMBER}), (world.key, set(Role))):
        for role in Role:
            invited = await world.post("/v1/invitations", {"email": new_email(), "role": role}, key=key)
            changed = await world.http.patch(ann, json={"role": role}, headers=world.headers(key))
            assert (invited.status_code, changed.status_code) == ((201, 200) if role in allowed else (403, 403)), role


async def test_members_and_viewers_manage_nobody(world: World) -> None:
    target = await Person.join(world, Role.VIEWER)
    for role in (Role.MEMBER, Role.VIEWER):
        person = await Person.join(world, role)
        path = f"/v1/members/{await target.id()}"
        assert error_of(await person.request("PATCH", path, {"role": "viewer"})) == (403, "forbidden")
        assert error_of(await person.request("DELETE", path)) == (403, "forbidden")
        assert error_of(await person.post("/v1/invitations", {"email": "x@example.com"})) == (403, "forbidden")


async def test_the_last_owner_stays(world: World) -> None:
    first = (await world.get("/v1/workspace")).json()["owner"]
    owner = await Person.join(world, Role.OWNER)
    # The first owner of the test's workspace, whose key the test uses.
    removed = await owner.request("DELETE", f"/v1/members/{first['user_id']}")
    assert removed.status_code == 204
    assert error_of(await world.get("/v1/workspace")) == (401, "unauthorized")
    path = f"/v1/members/{await owner.id()}"
    assert (await owner.get("/v1/workspace")).json()["owner"]["primary_email"] == owner.email
    for method, where, body in (
        ("PATCH", path, {"role": "admin"}),
        ("DELETE", path, None),
        ("POST", "/v1/workspace/leave", None),
    ):
        assert error_of(await owner.request(method, where, body)) == (409, "conflict")
    assert (await owner.get("/v1/whoami")).json()["role"] == "owner", "nothing was changed"
    second = await Person.join(world, Role.OWNER)
    assert (await owner.post("/v1/workspace/leave")).status_code == 204
    assert (await second.get("/v1/workspace")).json()["owner"]["primary_email"] == second.email


async def test_two_owners_who_demote_each_other_leave_one(world: World) -> None:
    first = (await world.get("/v1/workspace")).json()["owner"]
    pair = [await Person.join(world, Role.OWNER) for _ in range(2)]
    assert (await pair[0].request("DELETE", f"/v1/members/{first['user_id']}")).status_code == 204
    ids = [await person.id() for person in pair]
    demote = [
        one.request("PATCH", f"/v1/members/{other}", {"role": "member"})
        for one, other in zip(pair, reversed(ids), strict=True)
    ]
    statuses = sorted([answer.status_code for answer in await asyncio.gather(*demote)])
    assert statuses[0] == 200
    assert statuses[1] in (403, 409)
    ((left,),) = await world.fetch(
        "SELECT count(*) FROM members WHERE workspace_id = %s AND role = 'owner' AND ended_at IS NULL",
        world.workspace_id,
    )
    assert left == 1


async def test_a_role_that_was_lost_while_waiting_counts(world: World) -> None:
    ann = f"/v1/members/{await (await Person.join(world, Role.VIEWER)).id()}"
    for role in (Role.MEMBER, Role.ADMIN):
        owner = await Person.join(world, Role.OWNER)
        demote = f"UPDATE members SET role = '{role}' WHERE user_id = %s"
        asked = owner.request("PATCH", ann, {"role": "owner"})
        assert error_of(await answer_after(world, asked, demote, await owner.id())) == (403, "forbidden")
    owner = await Person.join(world, Role.OWNER)
    asked = owner.request("DELETE", ann)
    demote = "UPDATE members SET role = 'member' WHERE user_id = %s"
    assert error_of(await answer_after(world, asked, demote, await owner.id())) == (403, "forbidden")


async def test_two_owners_who_remove_each_other_do_not_wait_for_each_other(world: World) -> None:
    pair = [await Person.join(world, Role.OWNER) for _ in range(2)]
    ids = [await person.id() for person in pair]
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    free = "SELECT pg_try_advisory_xact_lock(credential_lock(id)) FROM devices WHERE user_id = ANY (%s::uuid[])"
    async with await world.connect() as connection, connection.transaction():
        await connection.execute("SELECT FROM workspaces WHERE id = %s FOR NO KEY UPDATE", (world.workspace_id,))
        asked = asyncio.gather(
            *(one.request("DELETE", f"/v1/members/{other}") for one, other in zip(pair, reversed(ids), strict=True))
        )
        while len(await world.fetch(waiting)) < len(pair):
            assert not asked.done()
            await asyncio.sleep(0.05)
        assert await world.fetch(free, ids) == [(True,), (True,)], "they would wait for these"
    assert sorted(answer.status_code for answer in await asked) == [204, 401]


async def test_removal_ends_keys_tokens_and_sign_ins(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    await world.execute("UPDATE members SET role = 'admin' WHERE user_id::text = %s", await ann.id())
    keys = [
        (await ann.post("/v1/api-keys", {"label": "x", "permissions": ["session.manage"]})).json()["secret"]
        for _ in range(3)
    ]
    session_id = (await ann.post("/v1/sessions", {})).json()["id"]
    token = (await ann.post(f"/v1/sessions/{session_id}/tokens", {})).json()["token"]
    assert (await world.submit(session_id, key=token)).status_code == 200
    ann_id = await ann.id()
    assert (await world.delete(f"/v1/members/{ann_id}")).status_code == 204
    for secret in (*keys, token):
        assert error_of(await world.get("/v1/whoami", key=secret)) == (401, "unauthorized")
        assert error_of(await world.submit(session_id, key=secret)) == (401, "unauthorized")
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized")
    assert (await world.get(f"/v1/sessions/{session_id}")).json()["created_by"]["primary_email"] == ann.email
    former = [one for one in (await world.get("/v1/members")).json()["items"] if one["user"]["user_id"] == ann_id]
    assert former[0]["ended_at"] is not None
    assert error_of(await world.delete(f"/v1/members/{ann_id}")) == (404, "not_found")
    async with await world.connect() as connection:
        await members.add_by_operator(connection, world.workspace_id, ann.email)
    assert (await ann.get("/v1/whoami")).status_code == 200, "the sign-in is the person's, and they are a member again"
    for secret in (*keys, token):
        assert error_of(await world.get("/v1/whoami", key=secret)) == (401, "unauthorized"), "stays revoked"


async def test_members_of_another_workspace_are_invisible(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    theirs = await Person.join(other, Role.MEMBER)
    for method, body in (("PATCH", {"role": "viewer"}), ("DELETE", None)):
        path = f"/v1/members/{await theirs.id()}"
        answer = await world.http.request(method, path, json=body, headers=world.headers())
        assert error_of(answer) == (404, "not_found")
    assert await roles(other) == {theirs.email: "member"} | await roles(other)


async def test_a_person_acts_in_each_workspace_with_the_role_there(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    ann = await Person.join(world, Role.OWNER)
    async with await world.connect() as connection:
        await members.add_by_operator(connection, other.workspace_id, ann.email, Role.VIEWER)
    here = await ann.get("/v1/whoami")
    assert (here.json()["workspace_id"], here.json()["role"]) == (str(world.workspace_id), "owner")
    ann.workspace_id = str(other.workspace_id)
    there = await ann.get("/v1/whoami")
    assert (there.json()["workspace_id"], there.json()["role"]) == (str(other.workspace_id), "viewer")
    assert error_of(await ann.post("/v1/sessions", {})) == (403, "forbidden")
    ann.workspace_id = None
    assert (await ann.get("/v1/whoami")).json()["workspace_id"] == str(world.workspace_id), "joined first"
    strange = await World.create(world.database_url, world.http)
    ann.workspace_id = str(strange.workspace_id)
    assert error_of(await ann.get("/v1/workspace")) == (404, "not_found")
    assert (
        error_of(await ann.post(f"/v1/sessions/{await strange.new_session()}/events", {"type": "input", "text": "x"}))[
            0
        ]
        == 404
    )
    profile = (await ann.get("/v1/profile")).json()
    assert [(one["workspace_id"], one["role"]) for one in profile["workspaces"]] == [
        (str(world.workspace_id), "owner"),
        (str(other.workspace_id), "viewer"),
    ]


async def test_receipts_of_a_device_belong_to_one_workspace(world: World) -> None:
    """Else the receipt of a workspace could be read by somebody who has left it."""
    other = await World.create(world.database_url, world.http)
    ann = await Person.join(world, Role.MEMBER)
    async with await world.connect() as connection:
        await members.add_by_operator(connection, other.workspace_id, ann.email)
    made = {}
    for one in (world, other):
        ann.workspace_id = str(one.workspace_id)
        for attempt in range(2):
            answer = await ann.request("POST", "/v1/sessions", {"title": "x"}, **{"Idempotency-Key": "the same"})
            assert answer.status_code == 201
            assert ("idempotency-replayed" in answer.headers) == bool(attempt)
            made[one.workspace_id] = answer.json()["id"]
    assert len(set(made.values())) == 2


async def test_keys_cannot_leave(world: World) -> None:
    assert error_of(await world.post("/v1/workspace/leave", None)) == (404, "not_found")
    assert error_of(await Browser(world).post("/v1/workspace/leave")) == (401, "unauthorized")
