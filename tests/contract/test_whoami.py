"""GET /v1/whoami."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from quarterdeck.core.actors import Permission
from quarterdeck.people import members, profiles
from tests.workers import eventually
from tests.world import World, error_of


async def test_a_key(world: World) -> None:
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    held = (Permission.SKILL_MANAGE, Permission.WORKSPACE_READ)
    secret, key_id = await world.new_key_record(held, expires_at, "build server")
    ((owner_id, email),) = await world.fetch(
        "SELECT u.id, u.email FROM workspaces w JOIN users u ON u.id = w.owner_id WHERE w.id = %s", world.workspace_id
    )
    answer = await world.get("/v1/whoami", key=secret)
    assert answer.status_code == 200
    assert answer.json() == {
        "kind": "api_key",
        "id": str(key_id),
        "prefix": secret[:16],
        "label": "build server",
        "role": "owner",
        "permissions": ["workspace.read", "skill.manage"],
        "workspace_id": str(world.workspace_id),
        "workspace_name": "Test",
        "session_id": None,
        "may_resolve": False,
        "expires_at": expires_at.isoformat().replace("+00:00", "Z"),
        "user": {"user_id": str(owner_id), "display_name": None, "primary_email": email},
    }


async def test_a_key_without_permissions_or_end(world: World) -> None:
    secret, key_id = await world.new_key_record(())
    body = (await world.get("/v1/whoami", key=secret)).json()
    assert (body["id"], body["permissions"], body["expires_at"]) == (str(key_id), [], None)


async def test_a_session_token(world: World) -> None:
    """Its maker is who made the key that made it. Whoever holds the token does not learn the maker's address."""
    email = f"{uuid4().hex}@example.com"
    async with await world.connect() as connection:
        user_id = await members.add_by_operator(connection, world.workspace_id, email)
        await profiles.name_by_operator(connection, email, "Ann")
    maker, maker_id = await world.new_key_record(tuple(Permission))
    await world.execute("UPDATE api_keys SET created_by = %s WHERE id = %s", user_id, maker_id)
    session_id = await world.new_session()
    created = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=maker)).json()
    assert (await world.get("/v1/whoami", key=created["token"])).json() == {
        "kind": "session_token",
        "id": created["id"],
        "prefix": created["prefix"],
        "label": None,
        "role": None,
        "permissions": [],
        "workspace_id": str(world.workspace_id),
        "workspace_name": "Test",
        "session_id": session_id,
        "may_resolve": False,
        "expires_at": created["expires_at"],
        "user": {"user_id": str(user_id), "display_name": "Ann", "primary_email": None},
    }
    await world.delete(f"/v1/sessions/{session_id}")
    assert error_of(await world.get("/v1/whoami", key=created["token"])) == (401, "unauthorized")


async def test_a_workspace_may_be_named_if_it_is_the_callers_own(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    for key in (world.key, await world.new_token(await world.new_session())):
        own = await world.get("/v1/whoami", key=key, headers={"Service-Workspace": str(world.workspace_id)})
        assert own.status_code == 200
        refused = [
            await world.get("/v1/whoami", key=key, headers={"Service-Workspace": str(named)})
            for named in (other.workspace_id, uuid4())
        ]
        assert {error_of(answer) for answer in refused} == {(404, "not_found")}
        assert refused[0].content == refused[1].content
        malformed = await world.get("/v1/whoami", key=key, headers={"Service-Workspace": "mine"})
        assert error_of(malformed) == (400, "invalid_request")


async def test_it_counts_as_use_of_the_key(world: World) -> None:
    secret, key_id = await world.new_key_record(())
    await world.get("/v1/whoami", key=secret)
    used = "SELECT FROM api_keys WHERE id = %s AND last_used_at IS NOT NULL"
    await eventually(lambda: world.fetch(used, key_id))
