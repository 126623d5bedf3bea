"""`qd login --key`, `qd whoami` and profiles. Signing in with a browser is in `test_sign_in.py`."""

import json
import stat
from pathlib import Path

import httpx

from quarterdeck.core.actors import Permission
from tests.cli.people import Nearby, nearby
from tests.world import EVERY_PERMISSION, Server, World, free_port


def with_login(home: Path, server: Server, world: World) -> Nearby:
    person = Nearby(home)
    person.done("login", "--key", "--url", server.url, given=f"{world.key}\n")
    return person


async def test_only_the_owner_can_read_the_saved_key(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    told = person.done("login", "--key", "--url", server.url, given=f"{world.key}\n")
    assert "Logged in to Test" in told
    assert world.key not in told
    assert stat.S_IMODE(person.profiles.stat().st_mode) == 0o600
    assert stat.S_IMODE(person.profiles.parent.stat().st_mode) == 0o700
    assert [file.name for file in person.profiles.parent.iterdir()] == ["profiles.json"]
    stored = json.loads(person.profiles.read_text())["profiles"]["default"]
    assert stored == {"url": server.url, "key": world.key, "workspace": str(world.workspace_id)}


async def test_login_prompts_and_does_not_show_the_key(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    code, shown = person.at_terminal("login", "--key", answers={"Server": server.url, "Key": world.key})
    assert code == 0, shown
    assert world.key not in shown
    assert person.json("whoami")["url"] == server.url


async def test_whoami_shows_everything_except_the_key(tmp_path: Path, server: Server, world: World) -> None:
    person = with_login(tmp_path, server, world)
    caller = (await world.get("/v1/whoami")).json()
    assert person.json("whoami") == {"url": server.url, "profile": "default"} | caller
    told = person.done("whoami")
    facts = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert facts["workspace"] == f"{world.workspace_id} Test"
    assert facts["key"] == f"{world.key[:16]}… test"
    assert facts["permissions"] == ", ".join(EVERY_PERMISSION)
    assert facts["expires"] == "never"
    assert world.key not in told


async def test_whoami_of_a_token_shows_its_session(tmp_path: Path, server: Server, world: World) -> None:
    session_id = await world.new_session()
    token = await world.new_token(session_id)
    person = Nearby(tmp_path, {"QD_URL": server.url, "QD_KEY": token})
    assert person.json("whoami")["session_id"] == session_id
    told = person.done("whoami")
    assert session_id in told
    assert f"{token[:17]}…" in told
    # The user has no name, and a token may not see the email address.
    user_id = person.json("whoami")["user"]["user_id"]
    assert f"User {user_id[:8]}\n" in told
    assert token not in told


async def test_a_key_without_read_permission_can_log_in(tmp_path: Path, server: Server, world: World) -> None:
    key = await world.new_key(Permission.SESSION_MANAGE)
    person = Nearby(tmp_path)
    person.done("login", "--key", "--url", server.url, given=key)
    found = person.json("whoami")
    assert (found["workspace_id"], found["permissions"]) == (str(world.workspace_id), ["session.manage"])


async def test_an_invalid_key_is_not_saved(tmp_path: Path, server: Server, world: World) -> None:
    person = Nearby(tmp_path)
    wrong = world.key[:-1] + ("a" if world.key[-1] != "a" else "b")
    code, told = person.refused("login", "--key", "--url", server.url, given=wrong)
    assert code == 3
    assert wrong not in told
    assert not person.profiles.exists()


async def test_login_refuses_a_session_token(tmp_path: Path, server: Server, world: World) -> None:
    session = await world.new_session()
    token = (await world.post(f"/v1/sessions/{session}/tokens", {})).json()["token"]
    assert Nearby(tmp_path).refused("login", "--key", "--url", server.url, given=token)[0] == 3


async def test_profiles(tmp_path: Path, server: Server, world: World) -> None:
    person = with_login(tmp_path, server, world)
    async with httpx.AsyncClient(base_url=server.url) as http:
        other = await World.create(server.database_url, http)
    person.done("login", "--key", "--profile", "other", "--url", server.url, given=other.key)
    assert person.json("whoami", "--profile", "other")["workspace_id"] == str(other.workspace_id)
    assert person.json("whoami")["workspace_id"] == str(world.workspace_id)
    chosen = Nearby(tmp_path, {"QD_PROFILE": "other"})
    assert chosen.json("whoami")["workspace_id"] == str(other.workspace_id)
    assert person.refused("whoami", "--profile", "third") == (
        2,
        "No profile named third. Profiles: default, other. Run `qd login` to create one.",
    )
    person.done("logout", "--profile", "other")
    assert person.refused("whoami", "--profile", "other")[0] == 2
    assert person.json("whoami")["profile"] == "default"


async def test_the_environment_overrides_the_profile(tmp_path: Path, server: Server, world: World) -> None:
    with_login(tmp_path, server, world)
    async with httpx.AsyncClient(base_url=server.url) as http:
        other = await World.create(server.database_url, http)
    person = Nearby(tmp_path, {"QD_KEY": other.key})
    assert person.json("whoami")["workspace_id"] == str(other.workspace_id)
    assert person.json("whoami", "--profile", "default")["workspace_id"] == str(world.workspace_id), "the option wins"
    both = nearby(tmp_path, server, other)
    assert both.json("whoami")["profile"] is None


async def test_a_saved_key_is_only_sent_to_its_server(tmp_path: Path, server: Server, world: World) -> None:
    with_login(tmp_path, server, world)
    person = Nearby(tmp_path, {"QD_URL": f"http://127.0.0.1:{free_port()}"})
    code, told = person.refused("whoami")
    assert code == 2
    assert f"is only sent to {server.url}" in told


async def test_a_profiles_file_that_others_can_read_is_refused(tmp_path: Path, server: Server, world: World) -> None:
    person = with_login(tmp_path, server, world)
    person.profiles.chmod(0o644)
    code, told = person.refused("sessions", "list")
    assert code == 2
    assert f"chmod 600 {person.profiles}" in told


async def test_an_invalid_profiles_file_is_not_quoted(tmp_path: Path, server: Server, world: World) -> None:
    person = with_login(tmp_path, server, world)
    person.profiles.write_text(f'{{"profiles": {{"default": "{world.key}"}}}}')
    code, told = person.refused("whoami")
    assert code == 2
    assert world.key not in told


def test_without_a_login_the_error_names_qd_login(tmp_path: Path) -> None:
    code, told = Nearby(tmp_path).refused("sessions", "list")
    assert code == 3
    assert "qd login" in told


def test_a_key_is_not_sent_unencrypted(tmp_path: Path) -> None:
    code, told = Nearby(tmp_path).refused("login", "--key", "--url", "http://example.invalid", given="qd_live_x")
    assert code == 2
    assert "--allow-http" in told


async def test_the_variables_of_the_first_start_are_enough(tmp_path: Path, server: Server, world: World) -> None:
    exports = {"QD_URL": server.url, "QD_WORKSPACE": str(world.workspace_id), "QD_KEY": world.key}
    person = Nearby(tmp_path, exports)
    assert person.json("whoami")["workspace_id"] == str(world.workspace_id)
    assert "none (environment)" in person.done("whoami")
    assert not person.profiles.exists()


async def test_login_saves_the_environment(tmp_path: Path, server: Server, world: World) -> None:
    """Without a warning about variables that match the profile."""
    person = nearby(tmp_path, server, world)
    assert person.qd("login", "--key").stderr == ""
    assert Nearby(tmp_path).json("whoami")["url"] == server.url


async def test_a_piped_key_overrides_the_environment(tmp_path: Path, server: Server, world: World) -> None:
    async with httpx.AsyncClient(base_url=server.url) as http:
        other = await World.create(server.database_url, http)
    workspace = {"QD_WORKSPACE": str(world.workspace_id)}
    person = Nearby(tmp_path, nearby(tmp_path, server, world).variables | workspace)
    ended = person.qd("login", "--key", given=other.key)
    assert ended.returncode == 0, ended.stderr
    assert "QD_KEY overrides the saved login" in ended.stderr
    assert Nearby(tmp_path).json("whoami")["workspace_id"] == str(other.workspace_id)


async def test_the_environment_of_another_server_is_not_used(tmp_path: Path, server: Server, world: World) -> None:
    elsewhere = {"QD_URL": "https://elsewhere.example", "QD_KEY": world.key}
    code, told = Nearby(tmp_path, elsewhere).refused("login", "--key", "--url", server.url)
    assert code == 2
    assert "No key" in told
