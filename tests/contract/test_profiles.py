"""Profiles, devices, and the codes of `qd login`."""

from quarterdeck.core.actors import Role
from tests.people import PASSWORD, Browser, Person
from tests.world import World, error_of


async def test_the_profile(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    profile = (await ann.get("/v1/profile")).json()
    assert profile["user"] == {"user_id": await ann.id(), "display_name": None, "primary_email": ann.email}
    assert profile["has_password"] is True
    changed = await ann.request("PATCH", "/v1/profile", {"display_name": "Ann"})
    assert changed.json() == profile | {"user": profile["user"] | {"display_name": "Ann"}}
    assert (await ann.get("/v1/whoami")).json()["user"]["display_name"] == "Ann"


async def test_keys_and_tokens_have_no_profile(world: World) -> None:
    token = await world.new_token(await world.new_session())
    for key in (world.key, token):
        for method, path in (("GET", "/v1/profile"), ("GET", "/v1/devices"), ("POST", "/v1/sign-out")):
            answer = await world.http.request(method, path, headers=world.headers(key))
            assert error_of(answer) == (404, "not_found")


async def test_a_new_password_signs_out_other_devices(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    other = Browser(world)
    await other.sign_in(ann.email)
    wrong = {"current_password": "wrong horse battery", "new_password": "a new pass phrase"}
    assert error_of(await ann.post("/v1/profile/password", wrong)) == (400, "invalid_request")
    missing = {"new_password": "a new pass phrase"}
    assert error_of(await ann.post("/v1/profile/password", missing)) == (400, "invalid_request")
    assert (await other.get("/v1/whoami")).status_code == 200
    body = {"current_password": PASSWORD, "new_password": "a new pass phrase"}
    assert (await ann.post("/v1/profile/password", body)).status_code == 200
    assert (await ann.get("/v1/whoami")).status_code == 200
    assert error_of(await other.get("/v1/whoami")) == (401, "unauthorized")
    assert (await other.sign_in(ann.email)).status_code == 401
    assert (await other.sign_in(ann.email, "a new pass phrase")).status_code == 200


async def test_tries_of_others_do_not_keep_a_person_from_changing_the_password(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    insert = "INSERT INTO sign_in_tries (subject, tries) VALUES (sha256(%s::text::bytea), 20)"
    await world.execute(insert, f"account:{ann.email}")
    body = {"current_password": PASSWORD, "new_password": "a new pass phrase"}
    assert (await ann.post("/v1/profile/password", body)).status_code == 200
    await world.execute(insert, f"account:{await ann.id()}")
    assert error_of(await ann.post("/v1/profile/password", body)) == (429, "too_many_requests")


async def test_no_hash_of_a_password_but_the_slow_one_is_stored(world: World) -> None:
    """The fingerprint of a receipt is a fast hash of the whole body."""
    ann = await Person.join(world, Role.MEMBER)
    body = {"current_password": PASSWORD, "new_password": "a new pass phrase"}
    answer = await ann.request("POST", "/v1/profile/password", body, **{"Idempotency-Key": ann.email})
    assert answer.status_code == 200
    assert await world.fetch("SELECT FROM receipts WHERE key = %s", ann.email) == []


async def test_devices_are_listed_and_signed_out(world: World) -> None:
    ann, bob = await Person.join(world, Role.MEMBER), await Person.join(world, Role.MEMBER)
    other = Browser(world)
    body = {"email": ann.email, "password": PASSWORD, "device_name": "Firefox on Linux"}
    await other.post("/v1/sign-in", body)
    devices = (await ann.get("/v1/devices")).json()["items"]
    assert [(one["kind"], one["name"]) for one in devices] == [("browser", "Firefox on Linux"), ("browser", "Browser")]
    assert devices[0]["address"] == "127.0.0.1"
    assert devices[1]["id"] == (await ann.get("/v1/profile")).json()["device_id"]
    path = f"/v1/devices/{devices[0]['id']}"
    assert error_of(await bob.request("DELETE", path)) == (404, "not_found"), "a device of somebody else"
    assert (await ann.request("DELETE", path)).status_code == 204
    assert error_of(await other.get("/v1/whoami")) == (401, "unauthorized")
    assert error_of(await ann.request("DELETE", path)) == (404, "not_found")
    assert [one["name"] for one in (await ann.get("/v1/devices")).json()["items"]] == ["Browser"]
    await other.sign_in(ann.email)
    assert (await ann.post("/v1/devices/end-all")).status_code == 204
    for browser in (ann, other):
        assert error_of(await browser.get("/v1/whoami")) == (401, "unauthorized")
    assert (await bob.get("/v1/whoami")).status_code == 200


async def test_the_last_use_of_a_device(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    for _ in range(300):
        (device,) = (await ann.get("/v1/devices")).json()["items"]
        if device["last_used_at"] is not None:
            return
    raise AssertionError("never written")


async def test_an_expired_device_is_signed_out(world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    await world.execute("UPDATE devices SET expires_at = now() WHERE user_id::text = %s", await ann.id())
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized")


async def test_the_command_line_signs_in(world: World) -> None:
    ann, terminal = await Person.join(world, Role.MEMBER), Browser(world)
    codes = (await terminal.post("/v1/device-codes", {"device_name": "qd on workstation"})).json()
    code = {"device_code": codes["device_code"]}
    pending = await terminal.post("/v1/device-codes/redeem", code)
    assert pending.json() == {"state": "pending", "secret": None, "user": None}
    typed = codes["user_code"].replace("-", "").lower()
    looked = (await ann.post("/v1/device-codes/look-up", {"user_code": typed})).json()
    assert (looked["user_code"], looked["device_name"], looked["address"]) == (
        codes["user_code"],
        "qd on workstation",
        "127.0.0.1",
    )
    answered = await ann.post("/v1/device-codes/answer", {"user_code": typed, "approve": True})
    assert answered.json() == {"device_name": "qd on workstation", "approved": True}
    redeemed = (await terminal.post("/v1/device-codes/redeem", code)).json()
    assert (redeemed["state"], redeemed["user"]["primary_email"]) == ("approved", ann.email)
    whoami = (await world.get("/v1/whoami", key=redeemed["secret"])).json()
    assert (whoami["kind"], whoami["label"], whoami["role"]) == ("device", "qd on workstation", "member")
    assert error_of(await terminal.post("/v1/device-codes/redeem", code)) == (404, "not_found"), "shown once"
    again = await ann.post("/v1/device-codes/answer", {"user_code": typed, "approve": False})
    assert error_of(again) == (404, "not_found")
    assert [one["kind"] for one in (await ann.get("/v1/devices")).json()["items"]] == ["command_line", "browser"]


async def test_denied_and_expired_codes(world: World) -> None:
    ann, terminal = await Person.join(world, Role.MEMBER), Browser(world)
    codes = (await terminal.post("/v1/device-codes", {"device_name": "x"})).json()
    await ann.post("/v1/device-codes/answer", {"user_code": codes["user_code"], "approve": False})
    redeemed = await terminal.post("/v1/device-codes/redeem", {"device_code": codes["device_code"]})
    assert redeemed.json()["state"] == "denied"
    late = (await terminal.post("/v1/device-codes", {"device_name": "x"})).json()
    await world.execute("UPDATE device_codes SET expires_at = now() WHERE user_code = %s", late["user_code"])
    body = {"user_code": late["user_code"]}
    assert error_of(await ann.post("/v1/device-codes/look-up", body)) == (404, "not_found")
    assert error_of(await ann.post("/v1/device-codes/answer", body | {"approve": True})) == (404, "not_found")
    for code in (late["device_code"], world.key, "x"):
        answer = await terminal.post("/v1/device-codes/redeem", {"device_code": code})
        assert error_of(answer) == (404, "not_found")


async def test_an_approval_ends_with_the_device_that_gave_it(world: World) -> None:
    """Else somebody with a stolen cookie would have a way back in."""
    new_password = {"current_password": PASSWORD, "new_password": "a new pass phrase"}
    for path, body in (("/v1/devices/end-all", None), ("/v1/profile/password", new_password), ("/v1/sign-out", None)):
        ann, thief, terminal = await Person.join(world, Role.MEMBER), Browser(world), Browser(world)
        await thief.sign_in(ann.email)
        codes = (await terminal.post("/v1/device-codes", {"device_name": "x"})).json()
        answer = {"user_code": codes["user_code"], "approve": True}
        assert (await thief.post("/v1/device-codes/answer", answer)).status_code == 200
        assert (await (thief if path == "/v1/sign-out" else ann).post(path, body)).status_code in (200, 204)
        redeemed = await terminal.post("/v1/device-codes/redeem", {"device_code": codes["device_code"]})
        assert error_of(redeemed) == (404, "not_found"), path


async def test_a_key_cannot_approve_a_code(world: World) -> None:
    codes = (await Browser(world).post("/v1/device-codes", {"device_name": "x"})).json()
    body = {"user_code": codes["user_code"]}
    assert error_of(await world.post("/v1/device-codes/look-up", body)) == (404, "not_found")
    assert error_of(await world.post("/v1/device-codes/answer", body | {"approve": True})) == (404, "not_found")
