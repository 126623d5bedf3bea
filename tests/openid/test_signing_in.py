"""Signing in at a provider, over HTTP: the way there, the way back, accounts, and attacks on each of them."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from quarterdeck.core.actors import Role
from quarterdeck.people.provider_model import BeginSignInBody, ProblemName
from tests.openid.hostile_provider import HostileProvider, encode, json_answer, rsa_key, signed
from tests.openid.site import Json, Site, Visitor, new_subject, sign_in
from tests.people import PASSWORD, Person, new_email
from tests.receivers import answering
from tests.world import error_of

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]
_OTHER_KEY = rsa_key("key-1")


def problem(name: ProblemName) -> str:
    return f"/sign-in?problem={name}"


# --- the way there and back ---


async def test_providers_are_listed(visitor: Visitor) -> None:
    answer = await visitor.get("/v1/sign-in/providers")
    titles = {one["name"]: one["title"] for one in answer.json()["providers"]}
    assert titles == {"corporate": "Example Corp", "partners": "Partners"}


async def test_a_person_signs_in(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    sent = await visitor.begin(return_to="/sessions?archived=true", device_name="Firefox")
    assert (sent["response_type"], sent["code_challenge_method"]) == ("code", "S256")
    assert sent["redirect_uri"] == f"{site.origin}/signed-in/corporate"
    corporate.claims["nonce"] = sent["nonce"]
    page = await visitor.come_back({"state": sent["state"], "code": "code"})
    assert page == "/sessions?archived=true"
    profile = (await visitor.get("/v1/profile")).json()
    assert profile["user"]["primary_email"] == corporate.claims["email"]
    assert profile["user"]["display_name"] == "Ada"
    assert not profile["has_password"]
    assert await visitor.roles() == {str(site.world.workspace_id): "member"}
    (device,) = (await visitor.get("/v1/devices")).json()["items"]
    assert device["name"] == "Firefox"
    assert corporate.asked("/token") == 1
    assert b"code_verifier=" in next(one.body for one in corporate.received if one.path == "/token")


async def test_cookies(visitor: Visitor, corporate: HostileProvider) -> None:
    answer = await visitor.post("/v1/sign-in/begin", {"provider": "corporate"})
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert name == "quarterdeck-sign-in"
    assert set(rest.split("; ")[1:]) == {"Path=/", "Max-Age=600", "HttpOnly", "SameSite=Lax"}
    host = visitor.http.base_url.netloc.decode()
    answer = await visitor.post("/v1/sign-in/begin", {"provider": "corporate"}, Origin=f"https://{host}")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-quarterdeck-sign-in=")
    assert cookie.endswith("; Secure")
    sent = httpx.URL(answer.json()["authorization_url"]).params
    assert sent["redirect_uri"] == f"https://{host}/signed-in/corporate"
    corporate.claims["nonce"] = sent["nonce"]
    back = await visitor.http.get(
        "/signed-in/corporate",
        params={"state": sent["state"], "code": "x"},
        headers={"Cookie": cookie.partition(";")[0]},
    )
    device, attempt = back.headers.get_list("set-cookie")
    assert device.startswith("__Host-quarterdeck=qdd_")
    assert {"HttpOnly", "SameSite=Strict", "Secure"} <= set(device.split("; "))
    assert attempt.startswith("__Host-quarterdeck-sign-in=; Path=/; Max-Age=0;")


async def test_the_second_sign_in_finds_the_account(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await sign_in(visitor, corporate)
    first = (await visitor.get("/v1/profile")).json()
    corporate.claims |= {"email": new_email(), "name": "Another name", "groups": ["platform", "engineering"]}
    async with Visitor(site.origin) as other:
        await sign_in(other, corporate)
        second = (await other.get("/v1/profile")).json()
        assert second["user"]["user_id"] == first["user"]["user_id"]
        assert second["user"]["primary_email"] == corporate.claims["email"]
        assert second["user"]["display_name"] == "Ada", "a person may have chosen it"
        assert list((await other.roles()).values()) == ["admin"], "the higher one"
    assert await visitor.is_signed_in()


@pytest.mark.parametrize(
    "claims", [{"email_verified": False}, {"email_verified": None}, {"email": "a b@c"}, {"email": "a\u200bb@c"}]
)
async def test_an_address_that_is_not_verified_is_not_shown(
    visitor: Visitor, corporate: HostileProvider, claims: Json
) -> None:
    corporate.claims |= claims
    assert await sign_in(visitor, corporate) == "/"
    profile = (await visitor.get("/v1/profile")).json()
    assert profile["user"]["primary_email"] is None


async def test_without_a_workspace(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    corporate.claims |= {"groups": ["sales"]}
    assert await sign_in(visitor, corporate) == problem(ProblemName.NO_WORKSPACE)
    assert not await visitor.is_signed_in()
    assert await site.world.fetch("SELECT FROM users WHERE email = %s", corporate.claims["email"]) == [], "no account"


async def test_sign_out_at_the_provider(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await sign_in(visitor, corporate)
    answer = await visitor.post("/v1/sign-out")
    url = httpx.URL(answer.json()["end_session_url"])
    assert str(url).startswith(f"{corporate.issuer}/end?")
    assert url.params["post_logout_redirect_uri"] == f"{site.origin}/"
    assert url.params["id_token_hint"].count(".") == 2
    assert not await visitor.is_signed_in()
    assert await site.world.fetch("SELECT FROM provider_sessions WHERE device_id = %s", visitor.device_id) == []
    corporate.metadata = {"end_session_endpoint": None}


# --- accounts ---


async def test_an_account_is_not_joined_by_its_address(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    ann = await Person.join(site.world, Role.ADMIN)
    corporate.claims |= {"email": ann.email.upper(), "groups": ["platform"]}
    assert await sign_in(visitor, corporate) == problem(ProblemName.EMAIL_TAKEN)
    assert not await visitor.is_signed_in()
    # Unless its owner connects it.
    answer = await visitor.post("/v1/sign-in", {"email": ann.email, "password": PASSWORD})
    assert answer.status_code == 200
    before = visitor.cookie("quarterdeck")
    sent = await visitor.begin(path="/v1/profile/connect-provider", return_to="/profile")
    corporate.claims["nonce"] = sent["nonce"]
    assert await visitor.come_back({"state": sent["state"], "code": "x"}) == "/profile"
    assert (await visitor.get("/v1/profile")).json()["user"]["user_id"] == await ann.id()
    assert visitor.cookie("quarterdeck") != before
    old = await site.world.http.get("/v1/whoami", headers={"Authorization": f"Bearer {before}"})
    assert old.status_code == 401, "the device was replaced"
    assert list((await visitor.roles()).values()) == ["admin"], "given by people"
    rows = await site.world.fetch(
        "SELECT detail FROM audit_events WHERE action = 'connect_provider' AND object_id = %s", await ann.id()
    )
    assert rows == [({"provider": "corporate"},)]
    async with Visitor(site.origin) as other:
        assert await sign_in(other, corporate) == "/"
        assert (await other.get("/v1/profile")).json()["user"]["user_id"] == await ann.id()


async def test_an_identity_belongs_to_one_account(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await sign_in(visitor, corporate)
    bob = await Person.join(site.world, Role.MEMBER)
    await visitor.post("/v1/sign-in", {"email": bob.email, "password": PASSWORD})
    sent = await visitor.begin(path="/v1/profile/connect-provider")
    corporate.claims["nonce"] = sent["nonce"]
    page = await visitor.come_back({"state": sent["state"], "code": "x"})
    assert page == problem(ProblemName.CONNECTED_BEFORE)
    # Nor has an account two identities at one provider.
    corporate.claims |= {"sub": new_subject()}
    for page in ("/", problem(ProblemName.CONNECTED_BEFORE)):
        sent = await visitor.begin(path="/v1/profile/connect-provider")
        corporate.claims["nonce"] = sent["nonce"]
        assert await visitor.come_back({"state": sent["state"], "code": "x"}) == page
        corporate.claims |= {"sub": new_subject()}


async def test_a_device_that_was_signed_out_connects_nothing(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    await sign_in(visitor, corporate)
    sent = await visitor.begin(path="/v1/profile/connect-provider")
    await site.world.execute("UPDATE devices SET ended_at = now() WHERE id = %s", visitor.device_id)
    corporate.claims |= {"sub": new_subject(), "nonce": sent["nonce"]}
    assert await visitor.come_back({"state": sent["state"], "code": "x"}) == problem(ProblemName.EXPIRED)


async def test_an_account_of_a_provider_cannot_be_entered_by_an_invitation(
    visitor: Visitor, corporate: HostileProvider, site: Site
) -> None:
    corporate.claims |= {"groups": ["engineering"]}
    await sign_in(visitor, corporate)
    await site.world.execute("DELETE FROM members WHERE given_by IS NOT NULL")
    (found,) = await site.world.fetch("SELECT id FROM users WHERE email = %s", corporate.claims["email"])
    created = await site.world.http.post(
        "/v1/invitations", json={"email": corporate.claims["email"]}, headers=site.world.headers()
    )
    body = {"token": created.json()["token"], "password": PASSWORD}
    answer = await visitor.post("/v1/invitations/accept", body)
    assert error_of(answer) == (409, "conflict")
    rows = await site.world.fetch("SELECT password_hash FROM users WHERE id = %s", found[0])
    assert rows == [(None,)]


# --- attacks ---


async def test_another_site_cannot_begin(visitor: Visitor, corporate: HostileProvider) -> None:
    for origin in ("https://evil.example", "null"):
        answer = await visitor.post("/v1/sign-in/begin", {"provider": "corporate"}, Origin=origin)
        assert error_of(answer) == (403, "forbidden")
        assert "set-cookie" not in answer.headers
    assert error_of(await visitor.post("/v1/sign-in/begin", {"provider": "other"})) == (404, "not_found")


@pytest.mark.parametrize(
    "return_to",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "sessions",
        "",
        "/a\r\nSet-Cookie: x=y",
        "/a\n",
        "/a b",
        "/ä",
        "/a#b",
        '/"><script>',
        "/" + "a" * 500,
    ],
)
async def test_open_redirects(visitor: Visitor, corporate: HostileProvider, return_to: str) -> None:
    answer = await visitor.post("/v1/sign-in/begin", {"provider": "corporate", "return_to": return_to})
    assert error_of(answer) == (400, "invalid_request")
    assert BeginSignInBody("corporate").return_to == "/"


async def test_a_code_and_a_state_are_used_once(visitor: Visitor, corporate: HostileProvider) -> None:
    sent = await visitor.begin()
    corporate.claims["nonce"] = sent["nonce"]
    cookie = visitor.cookie("quarterdeck-sign-in")
    assert await visitor.come_back({"state": sent["state"], "code": "code"}) == "/"
    visitor.set_cookie("quarterdeck-sign-in", cookie)
    for code in ("code", "another"):
        assert await visitor.come_back({"state": sent["state"], "code": code}) == problem(ProblemName.EXPIRED)
    assert corporate.asked("/token") == 1
    # Nor after a failure.
    sent = await visitor.begin()
    for _ in range(2):
        page = await visitor.come_back({"state": sent["state"], "code": "code"})
    assert page == problem(ProblemName.EXPIRED)
    assert corporate.asked("/token") == 2


async def test_login_csrf(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """An attacker begins, and sends the address of the callback to somebody else."""
    async with Visitor(site.origin) as attacker:
        sent = await attacker.begin()
        corporate.claims["nonce"] = sent["nonce"]
        answer = {"state": sent["state"], "code": "code"}
        # Without any cookie, and with one of an attempt of their own.
        assert await visitor.come_back(answer) == problem(ProblemName.EXPIRED)
        await visitor.begin()
        assert await visitor.come_back(answer) == problem(ProblemName.EXPIRED)
        assert not await visitor.is_signed_in()
        assert corporate.asked("/token") == 0
        assert await attacker.come_back(answer) == "/", "not used up"


async def test_session_fixation(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """The credential is a new one, whatever the browser had before."""
    await sign_in(visitor, corporate)
    planted = visitor.cookie("quarterdeck")
    first = visitor.device_id
    async with Visitor(site.origin) as victim:
        victim.set_cookie("quarterdeck", planted)
        corporate.claims |= {"sub": new_subject(), "email": new_email()}
        await sign_in(victim, corporate)
        assert victim.device_id != first
        assert victim.cookie("quarterdeck") != planted
    assert (await visitor.get("/v1/profile")).json()["device_id"] == str(first), "of the first person"


async def test_an_attempt_expires(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    sent = await visitor.begin()
    await site.world.execute("UPDATE sign_in_attempts SET expires_at = now() - interval '1 second'")
    corporate.claims["nonce"] = sent["nonce"]
    answer = {"state": sent["state"], "code": "code"}
    assert await visitor.come_back(answer) == problem(ProblemName.EXPIRED)
    assert corporate.asked("/token") == 0


async def test_mix_up(visitor: Visitor, corporate: HostileProvider, partners: HostileProvider) -> None:
    """The code of one provider is not sent to another one."""
    sent = await visitor.begin("partners")
    answer = {"state": sent["state"], "code": "code"}
    assert await visitor.come_back(answer, "corporate") == problem(ProblemName.EXPIRED)
    sent = await visitor.begin("partners")
    answer = {"state": sent["state"], "code": "code", "iss": corporate.issuer}
    assert await visitor.come_back(answer, "partners") == problem(ProblemName.FAILED)
    assert [one.asked("/token") for one in (corporate, partners)] == [0, 0]
    assert await visitor.come_back(answer, "nobody") == problem(ProblemName.EXPIRED)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "access_denied"},
        {"error": "<script>alert(1)</script>", "error_description": "https://evil.example"},
        {"error": "server_error", "code": "code"},
        {},
    ],
)
async def test_refusals_of_the_provider(visitor: Visitor, corporate: HostileProvider, answer: dict[str, str]) -> None:
    sent = await visitor.begin()
    assert await visitor.come_back({"state": sent["state"]} | answer) == problem(ProblemName.REFUSED)
    assert corporate.asked("/token") == 0


async def test_parameters_that_are_repeated(visitor: Visitor, corporate: HostileProvider) -> None:
    sent = await visitor.begin()
    for query in (f"state={sent['state']}&code=a&code=b", f"state=x&state={sent['state']}&code=a", "state=%00&code=a"):
        response = await visitor.http.get(f"/signed-in/corporate?{query}")
        assert response.headers["location"] == f"/#{problem(ProblemName.EXPIRED)}"
    assert corporate.asked("/token") == 0


def _token(change: Callable[[HostileProvider], str]) -> Callable[[HostileProvider], None]:
    def apply(corporate: HostileProvider) -> None:
        corporate.id_token = change(corporate)

    return apply


def _claims(**claims: Any) -> Callable[[HostileProvider], None]:
    return lambda corporate: corporate.claims.update(claims)


def _none(corporate: HostileProvider) -> str:
    return f"{encode({'alg': 'none', 'kid': 'key-1'})}.{encode(corporate.usual_claims)}."


_ATTACKS: dict[str, Callable[[HostileProvider], None]] = {
    "wrong issuer": _claims(iss="https://evil.example"),
    "wrong audience": _claims(aud="another"),
    "wrong nonce": _claims(nonce="another"),
    "no nonce": _claims(nonce=None),
    "expired": _claims(exp=time.time() - 3600),
    "from the future": _claims(iat=time.time() + 36_000),
    "alg none": _token(_none),
    "another key": _token(lambda corporate: signed(_OTHER_KEY, "RS256", corporate.usual_claims)),
}


@pytest.mark.parametrize("name", _ATTACKS)
async def test_tokens_that_are_not_accepted(
    visitor: Visitor, corporate: HostileProvider, name: str, site: Site
) -> None:
    sent = await visitor.begin()
    corporate.claims["nonce"] = sent["nonce"]
    _ATTACKS[name](corporate)
    page = await visitor.come_back({"state": sent["state"], "code": "code"})
    assert page == problem(ProblemName.FAILED)
    assert not await visitor.is_signed_in()
    assert corporate.asked("/token") == 1
    rows = await site.world.fetch("SELECT FROM identities WHERE subject = %s", corporate.claims["sub"])
    assert rows == []


async def test_clock_skew(visitor: Visitor, corporate: HostileProvider) -> None:
    """A clock that is half a minute off is allowed."""
    corporate.claims |= {"iat": time.time() + 30}
    assert await sign_in(visitor, corporate) == "/"


async def test_new_keys(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    await sign_in(visitor, corporate)
    new = rsa_key(f"key-{new_subject()}")
    corporate.keys = [corporate.public(new)]
    async with Visitor(site.origin) as other:
        sent = await other.begin()
        corporate.claims["nonce"] = sent["nonce"]
        corporate.id_token = signed(new, "RS256", corporate.usual_claims)
        assert await other.come_back({"state": sent["state"], "code": "code"}) == "/"
    # The other tests use the first one.
    corporate.keys = [corporate.public(corporate.key)]


async def test_a_provider_that_is_away(visitor: Visitor, corporate: HostileProvider) -> None:
    sent = await visitor.begin()
    corporate.behaviours["/token"] = answering(503)
    page = await visitor.come_back({"state": sent["state"], "code": "code"})
    assert page == problem(ProblemName.UNAVAILABLE)
    sent = await visitor.begin()
    corporate.behaviours["/token"] = json_answer({"error": "invalid_grant"}, 400)
    page = await visitor.come_back({"state": sent["state"], "code": "code"})
    assert page == problem(ProblemName.FAILED)


async def test_what_is_stored(visitor: Visitor, corporate: HostileProvider, site: Site) -> None:
    """Neither state nor cookie nor tokens can be read in the database."""
    corporate.token_answer = {"refresh_token": "refresh-token-of-the-test"}
    sent = await visitor.begin()
    cookie = visitor.cookie("quarterdeck-sign-in")
    rows = repr(await site.world.fetch("SELECT a::text FROM sign_in_attempts a"))
    assert sent["nonce"] in rows
    assert sent["state"] not in rows
    assert cookie not in rows
    corporate.claims["nonce"] = sent["nonce"]
    assert await visitor.come_back({"state": sent["state"], "code": "code"}) == "/"
    rows = repr(await site.world.fetch("SELECT * FROM provider_sessions WHERE device_id = %s", visitor.device_id))
    assert "refresh-token-of-the-test" not in rows
    log = site.server.log.read_text()
    assert "refresh-token-of-the-test" not in log
    assert sent["state"] not in log
