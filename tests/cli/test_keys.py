"""`qd keys`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from quarterdeck.core.actors import Permission
from tests.cli.people import nearby
from tests.world import Server, World


async def test_create_list_rotate_revoke(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    created = person.qd("keys", "create", "--label", "ci", "--permission", "workspace.read", "--expires-in", "30d")
    assert created.returncode == 0, created.stderr
    key_id, secret = (line.split()[1] for line in created.stdout.splitlines())
    assert "only once" in created.stderr
    assert (await world.get("/v1/sessions", key=secret)).status_code == 200

    (found,) = [key for key in person.json("keys", "list")["items"] if key["id"] == key_id]
    life = datetime.fromisoformat(found["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < life <= timedelta(days=30)
    table = person.done("keys", "list")
    assert secret not in table
    (row,) = [line for line in table.splitlines() if line.startswith(key_id)]
    assert "ci" in row
    assert "active" in row

    rotated = person.json("keys", "rotate", key_id, "--overlap", "0s")
    assert (await world.get("/v1/sessions", key=secret)).status_code == 401
    assert (await world.get("/v1/sessions", key=rotated["secret"])).status_code == 200

    assert person.done("keys", "revoke", rotated["id"], "--yes").startswith("revoked qd_")
    assert (await world.get("/v1/sessions", key=rotated["secret"])).status_code == 401


async def test_revoking_asks_for_confirmation(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    secret, key_id = await world.new_key_record((Permission.WORKSPACE_READ,))
    code, told = person.refused("keys", "revoke", str(key_id))
    assert (code, "--yes" in told) == (2, True)
    code, _ = person.at_terminal("keys", "revoke", str(key_id), answers={"Revoke": "n"})
    assert code == 130
    assert (await world.get("/v1/sessions", key=secret)).status_code == 200
    code, shown = person.at_terminal("keys", "revoke", str(key_id), answers={"Revoke": "y"})
    assert code == 0, shown
    assert (await world.get("/v1/sessions", key=secret)).status_code == 401


async def test_a_missing_permission(tmp_path: Path, server: Server, world: World) -> None:
    reader = nearby(tmp_path, server, world, await world.new_key(Permission.WORKSPACE_READ))
    code, told = reader.refused("keys", "create", "--label", "x", "--permission", "workspace.read")
    assert code == 3
    assert "key.manage" in told


async def test_wrong_values(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    begin = ("keys", "create", "--label", "x", "--permission")
    assert person.refused(*begin, "everything")[0] == 2
    assert person.refused(*begin, "key.manage", "--expires-in", "soon")[0] == 2
    assert person.refused(*begin, "key.manage", "--expires-in", "1d", "--expires-at", "2030-01-01")[0] == 2
    assert person.refused(*begin, "key.manage", "--expires-at", "2001-01-01")[0] == 2
    assert person.refused("keys", "rotate", "not-an-id")[0] == 4
    assert person.refused("keys", "rotate", str(world.workspace_id))[0] == 4


async def test_a_list_says_that_there_are_more(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    for _ in range(2):
        await world.new_key()
    page = person.json("keys", "list", "--limit", "2")
    assert (len(page["items"]), page["more"]) == (2, True)
    assert person.json("keys", "list", "--limit", "3")["more"] is False
    assert "more" in person.qd("keys", "list", "--limit", "2").stderr
