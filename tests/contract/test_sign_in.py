"""POST /v1/sign-in, POST /v1/sign-out, and the cookie of a browser."""

from typing import Any

import pytest

from quarterdeck.core.actors import Role
from quarterdeck.people.passwords import client_network
from tests.people import CLIENT, PASSWORD, Browser, Person, invite, new_email
from tests.world import TRIES_PER_ADDRESS, World, error_of


async def test_a_person_signs_in_and_out(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    other = Browser(world)
    answer = await other.sign_in(ann.email.upper())
    assert answer.status_code == 200, answer.text
    assert answer.json()["primary_email"] == ann.email
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie
    assert "qdd_" not in answer.text
    whoami = (await other.get("/v1/whoami")).json()
    assert (whoami["kind"], whoami["role"], whoami["user"]["primary_email"]) == ("device", "member", ann.email)
    secret = other.secret
    signed_out = await other.post("/v1/sign-out")
    assert (signed_out.status_code, signed_out.json()) == (200, {"end_session_url": None})
    assert "Max-Age=0" in signed_out.headers["set-cookie"]
    assert other.secret is None
    other.secret = secret
    assert error_of(await other.get("/v1/whoami")) == (401, "unauthorized")
    assert (await ann.get("/v1/whoami")).status_code == 200, "another device"


async def test_a_signed_out_credential_is_dead(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    headers = {"Authorization": f"Bearer {ann.secret}"}
    assert (await world.http.get("/v1/whoami", headers=headers)).status_code == 200
    await ann.post("/v1/sign-out")
    assert error_of(await world.http.get("/v1/whoami", headers=headers)) == (401, "unauthorized")


async def test_a_wrong_password_and_an_unknown_account_cannot_be_told_apart(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    for email in (ann.email, new_email(), "", "a\nb"):
        answer = await Browser(world).sign_in(email, "wrong horse battery")
        assert error_of(answer) == (401, "unauthorized")
        assert answer.json()["error"]["message"] == "The email address or the password is wrong."


async def test_a_former_member_cannot_sign_in(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    assert (await ann.post("/v1/workspace/leave")).status_code == 204
    answer = await Browser(world).sign_in(ann.email)
    assert error_of(answer) == (401, "unauthorized")


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://"])
async def test_another_site_cannot_sign_a_browser_in(world: World, origin: str | None) -> None:
    ann = await Person.join(world, Role.MEMBER)
    headers = {} if origin is None else {"Origin": origin}
    body = {"email": ann.email, "password": PASSWORD}
    answer = await world.http.post("/v1/sign-in", json=body, headers=headers)
    assert error_of(answer) == (403, "forbidden")
    assert "set-cookie" not in answer.headers


async def test_the_cookie_alone_is_not_enough(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    cookie = {"Cookie": f"quarterdeck={ann.secret}"}
    origin = {"Origin": ann.origin}

    async def status(method: str, headers: dict[str, str]) -> int:
        body: dict[str, str] | None = {} if method == "POST" else None
        return (await world.http.request(method, "/v1/sessions", json=body, headers=headers)).status_code

    assert await status("GET", cookie) == 401, "a page of another site can make a browser send this"
    assert await status("GET", cookie | CLIENT) == 200
    assert await status("POST", cookie | CLIENT) == 401, "no origin"
    assert await status("POST", cookie | CLIENT | {"Origin": "http://evil.example"}) == 401
    assert await status("POST", cookie | origin) == 401, "without the header of the console"
    assert await status("POST", cookie | origin | CLIENT) == 201


async def test_only_devices_are_taken_from_cookies(world: World) -> None:
    session_id = await world.new_session()
    for secret in (world.key, await world.new_token(session_id)):
        headers = {"Cookie": f"quarterdeck={secret}", **CLIENT}
        assert error_of(await world.http.get("/v1/whoami", headers=headers)) == (401, "unauthorized")


async def test_a_bad_header_is_not_mended_by_a_cookie(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    answer = await ann.request("GET", "/v1/whoami", Authorization="Bearer nonsense")
    assert error_of(answer) == (401, "unauthorized")


async def test_the_cookie_of_an_encrypted_page_is_bound_to_the_host(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    host = world.http.base_url.netloc.decode()
    body = {"email": ann.email, "password": PASSWORD}
    answer = await world.http.post("/v1/sign-in", json=body, headers={"Origin": f"https://{host}"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-quarterdeck=qdd_")
    assert cookie.endswith("; Secure")
    secret = cookie.partition("=")[2].partition(";")[0]
    headers = {"Cookie": f"quarterdeck=nonsense; __Host-quarterdeck={secret}", **CLIENT}
    assert (await world.http.get("/v1/whoami", headers=headers)).status_code == 200


async def test_tries_are_limited_for_an_account(world: World) -> None:
    """Also with the right password, and for an account that does not exist."""
    ann = await Person.join(world, Role.MEMBER)
    for email in (ann.email, new_email()):
        await world.execute(
            "INSERT INTO sign_in_tries (subject, tries) VALUES (sha256(%s::text::bytea), 20)", f"account:{email}"
        )
        answer = await Browser(world).sign_in(email.upper())
        assert error_of(answer) == (429, "too_many_requests")
        assert 0 < int(answer.headers["retry-after"]) <= 900
    subject = f"account:{ann.email}"
    await world.execute(
        "UPDATE sign_in_tries SET began_at = now() - interval '15 minutes 1 second' WHERE subject = sha256(%s::bytea)",
        subject,
    )
    answer = await Browser(world).sign_in(ann.email)
    assert answer.status_code == 200, "a new window"
    assert await world.fetch("SELECT FROM sign_in_tries WHERE subject = sha256(%s::bytea)", subject) == []


async def test_every_spelling_of_an_account_counts(world: World) -> None:
    """PostgreSQL finds the account by each of them. Python's lower() makes two characters of the Turkish letter."""
    email = f"i{new_email()}"
    token = await invite(world, email, Role.MEMBER)
    await Browser(world).post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
    await world.execute(
        "INSERT INTO sign_in_tries (subject, tries) VALUES (sha256(%s::text::bytea), 20)", f"account:{email}"
    )
    for spelling in (email, email.upper(), "\u0130" + email[1:]):
        assert error_of(await Browser(world).sign_in(spelling)) == (429, "too_many_requests")


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("unix", "other", False),
    ],
)
def test_clients_by_address(first: str, second: str, is_one: bool) -> None:
    """Whoever has one IPv6 address has 2**64 of them."""
    assert (client_network(first) == client_network(second)) is is_one


async def test_tries_are_limited_for_an_address(world: World) -> None:
    await world.execute(
        "INSERT INTO sign_in_tries (subject, tries) VALUES (sha256('address:127.0.0.1'), %s) "
        "ON CONFLICT (subject) DO UPDATE SET tries = excluded.tries",
        TRIES_PER_ADDRESS,
    )
    try:
        for path, body in (
            ("/v1/sign-in", {"email": "x@example.com", "password": PASSWORD}),
            ("/v1/invitations/look-up", {"token": "x"}),
            ("/v1/invitations/accept", {"token": "x", "password": PASSWORD}),
            ("/v1/device-codes", {"device_name": "x"}),
        ):
            assert error_of(await Browser(world).post(path, body)) == (429, "too_many_requests")
    finally:
        await world.execute("DELETE FROM sign_in_tries")


async def test_bad_bodies(world: World) -> None:
    bodies: list[Any] = [
        {},
        {"email": 1, "password": "x"},
        {"email": "x@y", "password": "x" * 1001},
        {"email": "x\0@y", "password": "x"},
        [],
    ]
    for body in bodies:
        assert error_of(await Browser(world).post("/v1/sign-in", body)) == (400, "invalid_request")
