"""Invitations: create, list, withdraw, look up, accept, join."""

import asyncio

from quarterdeck.core.actors import Role
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.people import invitations, members
from tests.people import PASSWORD, Browser, Person, answer_after, invite, new_email
from tests.world import World, error_of

KEYS, SIGN_IN = KeySettings(environment="test"), SignInSettings()


async def test_a_person_is_invited_and_joins(world: World) -> None:
    admin, email = await Person.join(world, Role.ADMIN), new_email()
    created = await admin.post("/v1/invitations", {"email": email, "role": "viewer"})
    assert created.status_code == 201, created.text
    token = created.json()["token"]
    assert token.startswith("qdi_")
    listed = (await admin.get("/v1/invitations")).json()["items"][0]
    assert listed == {name: value for name, value in created.json().items() if name != "token"}
    grace = Browser(world)
    summary = (await grace.post("/v1/invitations/look-up", {"token": token})).json()
    assert summary == {
        "email": email, "workspace_name": "Test", "role": "viewer", "invited_by": admin.email, "has_account": False,
        "may_change_email": False,
    }  # fmt: skip
    body = {"token": token, "password": PASSWORD, "display_name": "Grace"}
    accepted = await grace.post("/v1/invitations/accept", body)
    assert (accepted.status_code, accepted.json()["display_name"]) == (200, "Grace")
    whoami = (await grace.get("/v1/whoami")).json()
    assert (whoami["role"], whoami["workspace_id"]) == ("viewer", str(world.workspace_id))
    for path, again in (("look-up", {"token": token}), ("accept", body)):
        answer = await Browser(world).post(f"/v1/invitations/{path}", again)
        assert error_of(answer) == (404, "not_found"), "a link works once"
    assert (await admin.get("/v1/invitations")).json()["items"][0]["accepted_at"] is not None
    actions = [one["action"] for one in (await world.get("/v1/audit-events")).json()["items"][:3]]
    assert actions == ["accept_invitation", "sign_in", "create_invitation"]


async def test_a_replayed_invitation_hides_its_token(world: World) -> None:
    body, headers = {"email": new_email()}, {"Idempotency-Key": "once"}
    first = await world.post("/v1/invitations", body, headers=headers)
    again = await world.post("/v1/invitations", body, headers=headers)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert "token" in first.json()
    assert again.json() == {name: value for name, value in first.json().items() if name != "token"}


async def test_ended_invitations_open_nothing(world: World) -> None:
    async def opens(token: str) -> bool:
        looked = await Browser(world).post("/v1/invitations/look-up", {"token": token})
        accepted = await Browser(world).post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
        assert looked.content == accepted.content or looked.status_code == 200
        return looked.status_code == 200

    withdrawn = (await world.post("/v1/invitations", {"email": new_email()})).json()
    assert (await world.delete(f"/v1/invitations/{withdrawn['id']}")).status_code == 204
    assert error_of(await world.delete(f"/v1/invitations/{withdrawn['id']}")) == (409, "conflict")
    expired = (await world.post("/v1/invitations", {"email": new_email()})).json()
    await world.execute("UPDATE invitations SET expires_at = now() WHERE id::text = %s", expired["id"])
    for token in (withdrawn["token"], expired["token"], "nonsense", world.key, withdrawn["token"][:-1] + "x"):
        assert not await opens(token)


async def test_an_invitation_ends_with_the_rights_of_who_made_it(world: World) -> None:
    admin = await Person.join(world, Role.ADMIN)
    token = (await admin.post("/v1/invitations", {"email": new_email()})).json()["token"]
    look = "/v1/invitations/look-up"
    assert (await Browser(world).post(look, {"token": token})).status_code == 200
    for role, status in (("member", 404), ("viewer", 404), ("owner", 200), ("admin", 200)):
        await world.execute("UPDATE members SET role = %s WHERE user_id::text = %s", role, await admin.id())
        assert (await Browser(world).post(look, {"token": token})).status_code == status
    assert (await world.delete(f"/v1/members/{await admin.id()}")).status_code == 204
    assert (await Browser(world).post(look, {"token": token})).status_code == 404


async def test_only_owners_invite_owners(world: World) -> None:
    admin, owner = await Person.join(world, Role.ADMIN), await Person.join(world, Role.OWNER)
    body = {"email": new_email(), "role": "owner"}
    assert error_of(await admin.post("/v1/invitations", body)) == (403, "forbidden")
    created = await owner.post("/v1/invitations", body)
    assert created.status_code == 201
    await world.execute("UPDATE members SET role = 'admin' WHERE user_id::text = %s", await owner.id())
    look = await Browser(world).post("/v1/invitations/look-up", {"token": created.json()["token"]})
    assert error_of(look) == (404, "not_found")


async def test_a_member_cannot_be_invited_again(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    assert error_of(await world.post("/v1/invitations", {"email": ann.email.upper()})) == (409, "conflict")


async def test_an_invitation_never_opens_an_account_that_is_used(world: World) -> None:
    """Whoever invites sees the link too, and could choose the password."""
    other = await World.create(world.database_url, world.http)
    ann = await Person.join(other, Role.MEMBER)
    without_password = new_email()
    async with await world.connect() as connection:
        await members.add_by_operator(connection, other.workspace_id, without_password)
    for email in (ann.email, without_password):
        token = await invite(world, email, Role.MEMBER)
        looked = await Browser(world).post("/v1/invitations/look-up", {"token": token})
        assert looked.json()["has_account"] is True
        thief = Browser(world)
        stolen = await thief.post("/v1/invitations/accept", {"token": token, "password": "another password"})
        assert error_of(stolen) == (409, "conflict")
        assert thief.secret is None
    assert (await Browser(world).sign_in(ann.email)).status_code == 200, "the password is as it was"
    token = await invite(world, ann.email, Role.ADMIN)
    joined = await ann.post("/v1/workspace/join", {"token": token})
    assert joined.status_code == 200, joined.text
    assert [one["role"] for one in joined.json()["workspaces"]] == ["member", "admin"]
    again = await invite(world, new_email(), Role.ADMIN)
    assert error_of(await ann.post("/v1/workspace/join", {"token": again})) == (409, "conflict")
    assert error_of(await ann.post("/v1/workspace/join", {"token": token})) == (404, "not_found")
    events = (await world.get("/v1/audit-events?action=join_workspace")).json()["items"]
    assert [event["actor"]["primary_email"] for event in events] == [ann.email]


async def test_nor_an_account_of_a_former_member(world: World) -> None:
    """Whoever entered it would be let in where the person is added again."""
    email = new_email()
    async with await world.connect() as connection:
        await members.add_by_operator(connection, world.workspace_id, email)
        await members.remove_by_operator(connection, world.workspace_id, email)
    token = await invite(world, email, Role.MEMBER)
    accepted = await Browser(world).post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
    assert error_of(accepted) == (409, "conflict")


async def test_a_former_member_comes_back_by_an_invitation(world: World) -> None:
    """Without any workspace, nobody can sign in to join one."""
    ann = await Person.join(world, Role.ADMIN)
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, ann.email)
    assert error_of(await Browser(world).sign_in(ann.email)) == (401, "unauthorized")
    token = await invite(world, ann.email, Role.MEMBER)
    body = {"email": ann.email, "password": PASSWORD, "invitation_token": token}
    back = Browser(world)
    assert error_of(await back.post("/v1/sign-in", body | {"password": "wrong password"})) == (401, "unauthorized")
    assert error_of(await back.post("/v1/sign-in", body | {"invitation_token": "x"})) == (404, "not_found")
    signed_in = await back.post("/v1/sign-in", body)
    assert signed_in.status_code == 200, signed_in.text
    assert [one["role"] for one in (await back.get("/v1/profile")).json()["workspaces"]] == ["member"]
    assert error_of(await Browser(world).post("/v1/sign-in", body)) == (404, "not_found")
    events = (await world.get("/v1/audit-events?action=join_workspace")).json()["items"]
    assert [event["actor"]["primary_email"] for event in events] == [ann.email]


async def test_a_member_who_signs_in_with_an_invitation_keeps_the_role(world: World) -> None:
    ann = await Person.join(world, Role.ADMIN)
    token = await invite(world, new_email(), Role.VIEWER)
    body = {"email": ann.email, "password": PASSWORD, "invitation_token": token}
    assert (await Browser(world).post("/v1/sign-in", body)).status_code == 200
    assert [one["role"] for one in (await ann.get("/v1/profile")).json()["workspaces"]] == ["admin"]
    assert (await Browser(world).post("/v1/invitations/look-up", {"token": token})).status_code == 200


async def test_of_two_who_accept_one_joins(world: World) -> None:
    token = await invite(world, new_email(), Role.MEMBER)
    body = {"token": token, "password": PASSWORD}
    answers = await asyncio.gather(*(Browser(world).post("/v1/invitations/accept", body) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404]


async def test_the_operator_lets_an_owner_in_again(world: World) -> None:
    owner = await Person.join(world, Role.OWNER)
    async with await world.connect() as connection:
        token = await invitations.account_link(connection, KEYS, SIGN_IN, owner.email)
    browser, new = Browser(world), new_email()
    looked = (await browser.post("/v1/invitations/look-up", {"token": token})).json()
    assert (looked["workspace_name"], looked["has_account"], looked["may_change_email"]) == (None, False, True)
    taken = await Person.join(world, Role.MEMBER)
    body = {"token": token, "password": "a new pass phrase", "email": taken.email}
    assert error_of(await browser.post("/v1/invitations/accept", body)) == (409, "conflict")
    assert error_of(await taken.post("/v1/workspace/join", {"token": token})) == (404, "not_found")
    assert (await browser.post("/v1/invitations/accept", body | {"email": new})).status_code == 200
    whoami = (await browser.get("/v1/whoami")).json()
    assert (whoami["role"], whoami["user"]["primary_email"]) == ("owner", new)
    assert error_of(await owner.get("/v1/whoami")) == (401, "unauthorized"), "other devices are signed out"
    assert (await Browser(world).sign_in(new)).status_code == 401
    assert (await Browser(world).sign_in(new, "a new pass phrase")).status_code == 200


async def test_whoever_is_removed_while_somebody_joins_lets_nobody_in(world: World) -> None:
    ann = await Person.join(await World.create(world.database_url, world.http), Role.MEMBER)
    for browser, path, body in (
        (Browser(world), "/v1/invitations/accept", {"password": PASSWORD}),
        (ann, "/v1/workspace/join", {}),
    ):
        admin, email = await Person.join(world, Role.ADMIN), new_email()
        token = (await admin.post("/v1/invitations", {"email": email})).json()["token"]
        answer = await answer_after(
            world,
            browser.post(path, {"token": token} | body),
            "UPDATE members SET ended_at = now() WHERE user_id = %s",
            await admin.id(),
        )
        assert error_of(answer) == (404, "not_found"), path


async def test_a_new_password_ends_links_into_the_account(world: World) -> None:
    ann, body = await Person.join(world, Role.MEMBER), {"current_password": PASSWORD, "new_password": "another one"}
    async with await world.connect() as connection:
        first, second, third = [await invitations.account_link(connection, KEYS, SIGN_IN, ann.email) for _ in range(3)]
    accept = "/v1/invitations/accept"
    answers = await asyncio.gather(
        *(Browser(world).post(accept, {"token": token, "password": PASSWORD}) for token in (first, second))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 404]
    assert error_of(await Browser(world).post(accept, {"token": third, "password": PASSWORD})) == (404, "not_found")
    await ann.sign_in(ann.email)
    async with await world.connect() as connection:
        fourth = await invitations.account_link(connection, KEYS, SIGN_IN, ann.email)
    assert (await ann.post("/v1/profile/password", body)).status_code == 200
    assert error_of(await Browser(world).post(accept, {"token": fourth, "password": PASSWORD})) == (404, "not_found")


async def test_weak_passwords_and_wrong_bodies(world: World) -> None:
    token = await invite(world, new_email(), Role.MEMBER)
    for body in (
        {"token": token, "password": "short"},
        {"token": token, "password": "x" * 1001},
        {"token": token},
        {"token": token, "password": PASSWORD, "display_name": "a\nb"},
        {"token": token, "password": PASSWORD, "email": "nonsense"},
    ):
        assert error_of(await Browser(world).post("/v1/invitations/accept", body)) == (400, "invalid_request")
    hidden = [{"email": f"a{character}b@example.com"} for character in "\u200b\u202e\u00ad\u061c\U000e0041"]
    for body in ({"email": "nonsense"}, {"email": "a@b c"}, {"email": "x@example.com", "role": "king"}, {}, *hidden):
        assert error_of(await world.post("/v1/invitations", body)) == (400, "invalid_request")
