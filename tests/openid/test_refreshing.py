"""A provider is asked again and again: memberships follow its groups, and access ends when it says so."""

import asyncio
import time
from typing import Any

import pytest

from quarterdeck.core.actors import Role
from quarterdeck.people.provider_model import ProblemName
from tests.openid.hostile_provider import HostileProvider, json_answer
from tests.openid.site import Site, Visitor, entry, sign_in, site_server, write_providers
from tests.people import PASSWORD, Person, invite, new_email
from tests.receivers import answering, resetting
from tests.world import START_SECONDS, free_port

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

_REFUSED = json_answer({"error": "invalid_grant"}, 400)


@pytest.fixture(autouse=True)
def tokens(corporate: HostileProvider) -> None:
    corporate.token_answer = {"refresh_token": "refresh-0"}


async def signed_in(site: Site, visitor: Visitor, corporate: HostileProvider, *groups: str) -> dict[str, str]:
    """Who has signed in, with these groups. Their roles by workspace."""
    corporate.claims["groups"] = list(groups)
    assert await sign_in(visitor, corporate) == "/"
    # Refreshed tokens have none.
    corporate.claims["nonce"] = None
    corporate.received.clear()
    return await visitor.roles()


def sent_tokens(corporate: HostileProvider) -> list[str]:
    bodies = [one.body.decode() for one in corporate.received if one.path == "/token"]
    return [body.partition("refresh_token=")[2] for body in bodies if "grant_type=refresh_token" in body]


async def new_key(visitor: Visitor, workspace_id: object) -> str:
    """Of the person."""
    created = await visitor.post(
        "/v1/api-keys", {"label": "own", "permissions": []}, **{"Service-Workspace": str(workspace_id)}
    )
    assert created.status_code == 201, created.text
    secret: str = created.json()["secret"]
    return secret


async def works(site: Site, secret: str) -> bool:
    return (await site.world.get("/v1/whoami", key=secret)).status_code == 200


async def device_of_the_command_line(visitor: Visitor) -> str:
    """Approved in this browser."""
    code = (await visitor.post("/v1/device-codes", {"device_name": "qd"})).json()
    answer = await visitor.post("/v1/device-codes/answer", {"user_code": code["user_code"], "approve": True})
    assert answer.status_code == 200, answer.text
    secret: str = (await visitor.post("/v1/device-codes/redeem", {"device_code": code["device_code"]})).json()["secret"]
    return secret


async def actions_on(site: Site, visitor: Visitor) -> list[tuple[str, Any]]:
    """What the audit log says about the person, oldest first."""
    return await site.world.fetch(
        "SELECT action, detail FROM audit_events WHERE user_id IS NULL AND object_id IN "
        "(SELECT user_id FROM devices WHERE id = %s) ORDER BY id",
        visitor.device_id,
    )


# --- groups ---


async def test_roles_follow_the_groups(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    first, second = str(site.world.workspace_id), str(site.other_world.workspace_id)
    assert await signed_in(site, visitor, corporate, "engineering") == {first: "member"}
    corporate.claims["groups"] = ["platform", "founders"]
    await site.refresh(visitor)
    assert await visitor.roles() == {first: "admin", second: "owner"}
    corporate.claims["groups"] = ["founders"]
    await site.refresh(visitor)
    assert await visitor.roles() == {second: "owner"}
    log = await actions_on(site, visitor)
    assert [action for action, _ in log] == ["add_member", "change_member", "add_member", "remove_member"]
    assert {detail["provider"] for _, detail in log} == {corporate.issuer}
    assert sent_tokens(corporate) == ["refresh-0", "refresh-0"]


async def test_every_server_process_refreshes(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    corporate.claims["groups"] = ["platform"]
    await site.make_due(visitor)
    with site_server(site.server.database_url, site.server.data_dir, free_port(), OIDC_REFRESH_SECONDS=1):
        deadline = time.monotonic() + START_SECONDS
        while list((await visitor.roles()).values()) != ["admin"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def test_a_removed_group_ends_all_access(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "platform")
    key, command_line = await new_key(visitor, site.world.workspace_id), await device_of_the_command_line(visitor)
    assert await works(site, key)
    assert await works(site, command_line)
    corporate.claims["groups"] = ["sales"]
    await site.refresh(visitor)
    assert not await visitor.is_signed_in()
    assert not await works(site, key)
    assert not await works(site, command_line)
    assert await sign_in(visitor, corporate) == f"/sign-in?problem={ProblemName.NO_WORKSPACE}"
    # Keys stay revoked.
    await signed_in(site, visitor, corporate, "platform")
    assert await visitor.is_signed_in()
    assert not await works(site, key)


async def test_groups_are_also_followed_at_the_sign_in(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    corporate.claims["groups"] = ["sales"]
    async with Visitor(site.origin) as other:
        assert await sign_in(other, corporate) == f"/sign-in?problem={ProblemName.NO_WORKSPACE}"
    assert not await works(site, key), "what the provider takes away stays so, although nobody was signed in"


async def test_memberships_that_people_gave_stay(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    first, second = str(site.world.workspace_id), str(site.other_world.workspace_id)
    await signed_in(site, visitor, corporate, "engineering")
    token = await invite(site.other_world, new_email(), Role.VIEWER)
    assert (await visitor.post("/v1/workspace/join", {"token": token})).status_code == 200
    corporate.claims["groups"] = ["founders"]
    await site.refresh(visitor)
    assert await visitor.roles() == {second: "viewer"}
    # A membership that has ended is given anew by whoever gives it.
    await site.world.execute("UPDATE members SET given_by = NULL WHERE workspace_id = %s", site.world.workspace_id)
    corporate.claims["groups"] = ["engineering"]
    await site.refresh(visitor)
    assert await visitor.roles() == {first: "member", second: "viewer"}
    corporate.claims["groups"] = []
    await site.refresh(visitor)
    assert await visitor.roles() == {second: "viewer"}


async def test_the_last_owner_is_kept(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    second = str(site.other_world.workspace_id)
    await signed_in(site, visitor, corporate, "founders")
    others = "workspace_id = %s AND role = 'owner' AND user_id NOT IN (SELECT user_id FROM devices WHERE id = %s)"
    values = site.other_world.workspace_id, visitor.device_id
    await site.world.execute(f"UPDATE members SET ended_at = now() WHERE {others}", *values)
    corporate.claims["groups"] = ["engineering"]
    await site.refresh(visitor)
    assert await visitor.roles() == {second: "owner", str(site.world.workspace_id): "member"}, "the rest is done"
    assert [action for action, _ in await actions_on(site, visitor)] == ["add_member", "add_member"]
    corporate.claims["groups"] = []
    await site.world.execute(f"UPDATE members SET ended_at = NULL WHERE {others}", *values)
    await site.refresh(visitor)
    assert not await visitor.is_signed_in()


async def test_a_workspace_that_does_not_exist(
    visitor: Visitor, corporate: HostileProvider, site: Site, tmp_path: Any
) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    gone = {"group": "engineering", "workspace_id": "0197a5b2-7c1e-7d39-8a5f-3f1f0f5b6c7d", "role": "member"}
    everybody = {"workspace_id": str(site.other_world.workspace_id), "role": "viewer"}
    file = write_providers(tmp_path, {"corporate": entry(corporate.issuer, roles=[gone], everybody=[everybody])})
    await site.refresh(visitor, providers_file=str(file))
    assert await visitor.roles() == {str(site.other_world.workspace_id): "viewer"}


async def test_people_without_a_password_get_the_new_address(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    await signed_in(site, visitor, corporate, "engineering")

    async def address() -> str:
        return str((await visitor.get("/v1/profile")).json()["user"]["primary_email"])

    corporate.claims["email"] = renamed = new_email()
    await site.refresh(visitor)
    assert await address() == renamed
    ann = await Person.join(site.world, Role.MEMBER)
    corporate.claims["email"] = ann.email
    await site.refresh(visitor)
    assert await address() == renamed, "of another account"
    assert (await visitor.post("/v1/profile/password", {"new_password": PASSWORD})).status_code == 200
    corporate.claims["email"] = new_email()
    await site.refresh(visitor)
    assert await address() == renamed, "they sign in with it"


# --- the end of a grant ---


async def test_a_refused_refresh_ends_all_access(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "platform")
    key, command_line = await new_key(visitor, site.world.workspace_id), await device_of_the_command_line(visitor)
    corporate.behaviours["/token"] = _REFUSED
    await site.refresh(visitor)
    assert not await visitor.is_signed_in()
    assert not await works(site, key)
    assert not await works(site, command_line)
    assert [action for action, _ in await actions_on(site, visitor)] == ["add_member", "remove_member"]
    assert await site.world.fetch("SELECT FROM provider_sessions WHERE device_id = %s", visitor.device_id) == []
    # Not for ever, if the provider thinks otherwise.
    corporate.behaviours.clear()
    assert await sign_in(visitor, corporate) == "/"
    assert list((await visitor.roles()).values()) == ["admin"]


async def test_other_devices_of_a_person_without_a_password(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    """Also in a workspace that people let them into: a command line was signed in through the provider."""
    await signed_in(site, visitor, corporate, "engineering")
    token = await invite(site.other_world, new_email(), Role.VIEWER)
    assert (await visitor.post("/v1/workspace/join", {"token": token})).status_code == 200
    command_line = await device_of_the_command_line(visitor)
    corporate.behaviours["/token"] = _REFUSED
    await site.refresh(visitor)
    assert not await visitor.is_signed_in()
    assert not await works(site, command_line)


async def test_another_sign_in_that_is_in_force(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    async with Visitor(site.origin) as other:
        assert await sign_in(other, corporate) == "/"
        corporate.behaviours["/token"] = _REFUSED
        await site.refresh(visitor)
        assert not await visitor.is_signed_in()
        assert await other.is_signed_in()
        assert list((await other.roles()).values()) == ["member"]
        await site.refresh(other)
        assert not await other.is_signed_in()


async def test_a_device_that_was_signed_out_is_left_alone(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    """The provider may have ended the grant because the person signed out there: keys stay valid."""
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    await visitor.post("/v1/sign-out")
    corporate.behaviours["/token"] = _REFUSED
    await site.refresh(visitor)
    assert await works(site, key)
    assert corporate.asked("/token") == 0


async def test_memberships_end_that_nobody_confirms(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """Keys of people who have signed out do not work for ever."""
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    await visitor.post("/v1/sign-out")
    overdue = "UPDATE identities SET members_until = now() %s interval '1 minute' WHERE subject = %%s"
    await site.world.execute(overdue % "+", corporate.claims["sub"])
    async with site.refresher() as refresher:
        await refresher.refresh()
        assert await works(site, key)
        await site.world.execute(overdue % "-", corporate.claims["sub"])
        await refresher.refresh()
        assert not await works(site, key)


# --- a provider that does not answer, or not so ---


@pytest.mark.parametrize("behaviour", [answering(503), resetting, json_answer({"error": "invalid_client"}, 401)])
async def test_a_provider_that_is_away(
    visitor: Visitor, corporate: HostileProvider, site: Site, behaviour: Any
) -> None:
    """Nothing changes until the grace has passed. A wrong client secret is no statement about a person."""
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    corporate.behaviours["/token"] = behaviour
    await site.refresh(visitor)
    await site.age(visitor, 3500)
    await site.refresh(visitor, grace_seconds=3600.0)
    assert await visitor.is_signed_in()
    corporate.behaviours.clear()
    await site.refresh(visitor, grace_seconds=3600.0)
    await site.age(visitor, 3500)
    corporate.behaviours["/token"] = behaviour
    await site.refresh(visitor, grace_seconds=3600.0)
    assert await visitor.is_signed_in(), "counted from the last confirmation"
    await site.age(visitor, 200)
    await site.refresh(visitor, grace_seconds=3600.0)
    assert not await visitor.is_signed_in()
    assert await works(site, key), "the provider has not said anything about the person"
    corporate.behaviours.clear()
    assert await sign_in(visitor, corporate) == "/"


async def test_a_provider_without_refresh_tokens(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    corporate.token_answer = {}
    await signed_in(site, visitor, corporate, "engineering")
    await site.refresh(visitor, grace_seconds=3600.0)
    assert await visitor.is_signed_in()
    await site.age(visitor, 3700)
    await site.refresh(visitor, grace_seconds=3600.0)
    assert not await visitor.is_signed_in()
    assert corporate.asked("/token") == 0


async def test_a_provider_that_is_not_described_any_more(
    visitor: Visitor, corporate: HostileProvider, partners: HostileProvider, site: Site, tmp_path: Any
) -> None:
    """A refresh token is not sent to another issuer that has the same name now."""
    await signed_in(site, visitor, corporate, "engineering")
    file = write_providers(tmp_path, {"corporate": entry(partners.issuer)})
    await site.refresh(visitor, providers_file=str(file))
    assert await visitor.is_signed_in()
    await site.age(visitor, 3700)
    await site.refresh(visitor, grace_seconds=3600.0, providers_file=str(file))
    assert not await visitor.is_signed_in()
    assert [corporate.received, partners.received] == [[], []]


@pytest.mark.parametrize("claims", [{"sub": "another"}, {"aud": "another"}, {"exp": 1000}])
async def test_answers_that_are_not_accepted(
    visitor: Visitor, corporate: HostileProvider, site: Site, claims: Any
) -> None:
    before = await signed_in(site, visitor, corporate, "engineering")
    own = dict(corporate.claims)
    corporate.claims |= claims | {"groups": ["platform"]}
    corporate.token_answer = {"refresh_token": "refresh-1"}
    await site.refresh(visitor)
    assert await visitor.roles() == before
    # The provider has replaced the token nevertheless.
    corporate.claims = own | {"groups": ["platform"]}
    await site.refresh(visitor)
    assert list((await visitor.roles()).values()) == ["admin"]
    assert sent_tokens(corporate) == ["refresh-0", "refresh-1"]


# --- rotation of refresh tokens ---


async def test_refresh_tokens_are_replaced(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    for number in range(1, 4):
        corporate.token_answer = {"refresh_token": f"refresh-{number}"}
        await site.refresh(visitor)
    corporate.token_answer = {}
    await site.refresh(visitor)
    await site.refresh(visitor)
    assert sent_tokens(corporate) == ["refresh-0", "refresh-1", "refresh-2", "refresh-3", "refresh-3"]


async def test_two_processes_do_not_use_the_same_token(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    go = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await json_answer(corporate.answer("/token"))(writer)

    corporate.behaviours["/token"] = wait
    await site.make_due(visitor)
    async with site.refresher() as first, site.refresher() as second:
        refreshing = asyncio.create_task(first.refresh())
        while not corporate.asked("/token"):
            await asyncio.sleep(0)
        await second.refresh()
        go.set()
        await refreshing
    assert corporate.asked("/token") == 1


async def test_a_lost_answer(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """A crash, after which the provider refuses the token that it has replaced: the person has to sign in again, but
    loses neither membership nor keys at once."""
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    corporate.behaviours["/token"] = resetting
    await site.refresh(visitor)
    corporate.behaviours["/token"] = _REFUSED
    await site.refresh(visitor, grace_seconds=3600.0)
    assert not await visitor.is_signed_in()
    assert await works(site, key)
    ((seconds,),) = await site.world.fetch(
        "SELECT extract(epoch FROM members_until - now())::float8 FROM identities WHERE subject = %s",
        corporate.claims["sub"],
    )
    assert 0 < seconds <= 3600, "nor keeps them for ever"
    await site.world.execute(
        "UPDATE identities SET members_until = members_until - interval '1 hour' WHERE subject = %s",
        corporate.claims["sub"],
    )
    async with site.refresher() as refresher:
        await refresher.refresh()
    assert not await works(site, key)


async def test_an_answer_after_a_lost_one(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """A token that works again is no longer in doubt."""
    await signed_in(site, visitor, corporate, "platform")
    key = await new_key(visitor, site.world.workspace_id)
    corporate.behaviours["/token"] = resetting
    await site.refresh(visitor)
    corporate.behaviours.clear()
    await site.refresh(visitor)
    corporate.behaviours["/token"] = _REFUSED
    await site.refresh(visitor)
    assert not await works(site, key)


async def test_a_process_that_stops_stores_the_answer(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await signed_in(site, visitor, corporate, "engineering")
    go = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await json_answer(corporate.answer("/token"))(writer)

    corporate.token_answer = {"refresh_token": "refresh-1"}
    corporate.behaviours["/token"] = wait
    await site.make_due(visitor)
    async with site.refresher() as refresher:
        refreshing = asyncio.create_task(refresher.refresh())
        while not corporate.asked("/token"):
            await asyncio.sleep(0)
        refreshing.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
    del corporate.behaviours["/token"]
    await site.refresh(visitor)
    assert sent_tokens(corporate) == ["refresh-0", "refresh-1"]
