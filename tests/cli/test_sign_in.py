"""`qd login` with a browser, and `qd logout`."""

import asyncio
import json
import shutil
import signal
import stat
from pathlib import Path

import pytest

from quarterdeck.core.actors import Role
from tests.cli.people import Nearby, nearby
from tests.cli.screen import terminal
from tests.cli.signing_in import logging_in, signed_in
from tests.client.faulty_proxy import Proxy, passes, resets_after_the_effect
from tests.contract.test_proxies import nginx, running
from tests.contract.test_webhook_sender import certificate
from tests.people import Person, join
from tests.world import Server, World, error_of, free_port


async def answer(person: Person, code: str, *, approve: bool = True) -> None:
    answered = await person.post("/v1/device-codes/answer", {"user_code": code, "approve": approve})
    assert answered.status_code == 200, answered.text


def saved(person: Nearby) -> dict[str, str]:
    found: dict[str, str] = json.loads(person.profiles.read_text())["profiles"]["default"]
    return found


async def test_an_approved_code_signs_in(tmp_path: Path, server: Server, world: World) -> None:
    ann, person = await Person.join(world, Role.MEMBER), Nearby(tmp_path)
    with logging_in(person, "--url", f"{server.url}/") as login:
        code = login.code()
        assert f"  {server.url}/#/devices/approve?code={code}\n" in login.shown
        assert f"check the code {code} and approve it" in login.shown
        await answer(ann, code)
        ended, out, err = login.ended()
    assert (ended, out, err) == (0, f"Logged in to Test at {server.url}/ as {ann.email} (profile default)\n", "")
    stored = saved(person)
    assert stored["key"].startswith("qdd_live_")
    assert stored | {"key": ""} == {
        "url": f"{server.url}/",
        "key": "",
        "workspace": str(world.workspace_id),
        "email": ann.email,
    }
    assert stat.S_IMODE(person.profiles.stat().st_mode) == 0o600
    told = person.done("whoami")
    facts = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert (facts["role"], facts["person"], facts["profile"]) == ("member", ann.email, "default")
    assert facts["device"].startswith(f"{stored['key'][:17]}… qd on ")
    assert stored["key"] not in told
    assert person.json("sessions", "list") == {"items": [], "more": False}


async def test_a_denied_code(tmp_path: Path, server: Server, world: World) -> None:
    ann, person = await Person.join(world, Role.MEMBER), Nearby(tmp_path)
    with logging_in(person, "--url", server.url) as login:
        await answer(ann, login.code(), approve=False)
        assert login.ended() == (3, "", "qd: The code was denied. Run `qd login` to try again.")
    assert not person.profiles.exists()


async def test_an_expired_code(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    with logging_in(person, "--url", server.url) as login:
        await world.execute("UPDATE device_codes SET expires_at = now() WHERE user_code = %s", login.code())
        assert login.ended() == (3, "", "qd: The code has expired. Run `qd login` again.")
    assert not person.profiles.exists()


async def test_ctrl_c_ends_it(tmp_path: Path, server: Server) -> None:
    person = Nearby(tmp_path)
    with logging_in(person, "--url", server.url) as login:
        login.code()
        login.interrupt()
        assert login.ended() == (130, "", "qd: Interrupted")
    assert not person.profiles.exists()


async def test_a_key_in_the_environment_is_not_used_without_the_option(
    tmp_path: Path, server: Server, world: World
) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = nearby(tmp_path, server, world)
    with logging_in(person) as login:
        await answer(ann, login.code())
        code, out, err = login.ended()
    assert code == 0
    assert out.endswith(f"as {ann.email} (profile default)\n")
    assert "QD_KEY overrides the saved login. Run `unset QD_KEY`" in err


@pytest.mark.parametrize("given", ["Second", "id"])
async def test_login_to_one_of_several_workspaces(tmp_path: Path, server: Server, world: World, given: str) -> None:
    ann, person = await Person.join(world, Role.MEMBER), Nearby(tmp_path)
    other = await World.create(server.database_url, world.http)
    await other.execute("UPDATE workspaces SET name = 'Second' WHERE id = %s", other.workspace_id)
    await join(ann, other, Role.VIEWER)
    wanted = str(other.workspace_id) if given == "id" else given
    with logging_in(person, "--url", server.url, "--workspace", wanted) as login:
        await answer(ann, login.code())
        assert login.ended()[1].startswith("Logged in to Second at ")
    assert person.json("whoami")["workspace_id"] == str(other.workspace_id)


async def test_another_login_ends_the_device_before(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    before = saved(person)["key"]
    assert (await world.get("/v1/whoami", key=before)).status_code == 200
    person.done("login", "--key", "--url", server.url, given=world.key)
    assert error_of(await world.get("/v1/whoami", key=before)) == (401, "unauthorized")
    assert person.json("whoami")["kind"] == "api_key"


async def test_a_terminal_shows_that_it_waits_and_opens_the_browser(
    tmp_path: Path, server: Server, world: World
) -> None:
    ann, person = await Person.join(world, Role.MEMBER), Nearby(tmp_path)
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part\nmv {opened}.part {opened}\n')
    browser.chmod(0o755)
    variables = person.environ | {"BROWSER": f"{browser} %s"}
    with terminal("login", "--url", server.url, variables=variables, columns=120) as shown:
        shown.wait("Waiting for the approval. Press Ctrl-C to cancel.")
        page = opened.read_text().strip()
        assert page in shown.text()
        await answer(ann, page.partition("code=")[2])
        assert shown.ended() == 0
        assert "Waiting" not in shown.text()
    opened.unlink()
    with terminal("login", "--no-browser", "--url", server.url, variables=variables, columns=120) as shown:
        shown.wait("Waiting for the approval")
        assert not opened.exists()
        shown.process.send_signal(signal.SIGINT)
        assert shown.ended() == 130
        assert "qd: Interrupted" in shown.text()
    with terminal("login", "--url", server.url, variables=variables | {"BROWSER": "/nowhere %s"}) as shown:
        shown.wait("Waiting for the approval")


async def test_logout_ends_the_device(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    key = saved(person)["key"]
    assert person.done("logout") == "Deleted the profile default\n"
    assert error_of(await world.get("/v1/whoami", key=key)) == (401, "unauthorized")
    assert person.refused("whoami")[0] == 3
    assert (await ann.get("/v1/whoami")).status_code == 200, "another device"


async def test_logout_of_a_device_that_has_ended(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    await ann.post("/v1/devices/end-all")
    assert person.done("logout") == "Deleted the profile default\n"


async def test_logout_without_the_server(tmp_path: Path, server: Server, world: World) -> None:
    person = await signed_in(tmp_path, server, await Person.join(world, Role.MEMBER))
    url = f"http://127.0.0.1:{free_port()}"
    person.profiles.write_text(person.profiles.read_text().replace(server.url, url))
    code, told = person.refused("logout")
    assert code == 1
    assert told.startswith("Deleted the profile default, but the server did not sign it out: Cannot connect")
    assert told.endswith(f"End this device in the console at {url}/#/profile.")
    assert saved_names(person) == []


def saved_names(person: Nearby) -> list[str]:
    return list(json.loads(person.profiles.read_text()).get("profiles", {}))


async def test_logout_everywhere(tmp_path: Path, server: Server, world: World) -> None:
    ann = await Person.join(world, Role.MEMBER)
    person = await signed_in(tmp_path, server, ann)
    assert person.done("logout", "--everywhere") == "Signed out everywhere, and deleted the profile default\n"
    assert error_of(await ann.get("/v1/whoami")) == (401, "unauthorized")
    assert saved_names(person) == []


async def test_a_key_is_signed_in_nowhere_else(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    person.done("login", "--key", "--url", server.url, given=world.key)
    code, told = person.refused("logout", "--everywhere")
    assert (code, "API key" in told) == (2, True)
    person.done("logout")
    assert (await world.get("/v1/whoami")).status_code == 200


async def test_lost_responses_do_not_end_the_wait(tmp_path: Path, server: Server, world: World) -> None:
    ann, person = await Person.join(world, Role.MEMBER), Nearby(tmp_path)
    script = [passes, resets_after_the_effect, resets_after_the_effect]
    async with Proxy(server, script).running() as proxy:
        with logging_in(person, "--url", proxy.url) as login:
            code = await asyncio.to_thread(login.code)
            while len(proxy.requests) < 4:
                await asyncio.sleep(0.05)
            await answer(ann, code)
            ended, _, err = await asyncio.to_thread(login.ended)
    assert (ended, err) == (0, "")


@pytest.mark.long
async def test_behind_a_proxy_with_tls(tmp_path: Path, server: Server, world: World) -> None:
    """The cookie of a browser then has another name, and the certificate is one that only this person trusts."""
    if shutil.which("nginx", path="/usr/bin:/usr/sbin") is None:
        pytest.skip("nginx is not installed: apt-get install nginx")
    port, person = free_port(), Nearby(tmp_path)
    certificate(tmp_path, "localhost")
    command = nginx(tmp_path, server.port, port)
    site = tmp_path / "quarterdeck.conf"
    files = f"ssl_certificate {tmp_path}/chain.pem; ssl_certificate_key {tmp_path}/key.pem;"
    site.write_text(site.read_text().replace(f"listen {port};", f"listen {port} ssl; {files}"))
    ann = await Person.join(world, Role.MEMBER)
    variables = person.environ | {"SSL_CERT_FILE": str(tmp_path / "chain.pem")}
    with running(command, tmp_path, port):
        url = f"https://localhost:{port}"
        with terminal("login", "--url", url, variables=variables, columns=120) as shown:
            text = shown.wait(f"{url}/#/devices/approve?code=", "Waiting for the approval")
            await answer(ann, text.partition("?code=")[2].split()[0])
            assert shown.ended() == 0
            assert f"Logged in to Test at {url} as {ann.email}" in shown.text()
        with terminal("whoami", variables=variables, columns=120) as shown:
            assert shown.ended() == 0
            assert ann.email in shown.text()
        del variables["SSL_CERT_FILE"]
        with terminal("whoami", variables=variables, columns=120) as shown:
            assert shown.ended() == 6, "an unknown certificate"
