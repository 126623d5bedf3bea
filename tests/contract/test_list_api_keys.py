"""GET /v1/api-keys: every status and rule of the interface."""

from uuid import UUID, uuid4

import httpx

from quarterdeck.core.actors import Permission
from quarterdeck.core.ids import new_id
from quarterdeck.people import members
from tests.workers import eventually
from tests.world import Server, World, error_of

# The same in every process of a parallel run.
SOME_ID = UUID("8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55")


async def walk(world: World, order: str, limit: int) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = (await world.list_keys(f"?order={order}&limit={limit}{cursor}")).json()
        assert set(page) == {"items", "next_cursor"}
        assert len(page["items"]) <= limit
        found += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        assert len(page["items"]) == limit, "only the last page may be short"
        cursor = f"&after={page['next_cursor']}"


async def add_keys(world: World, count: int) -> list[str]:
    """Many keys of the very same millisecond."""
    instant = new_id().int >> 80
    ids = [UUID(int=(instant << 80) | (uuid4().int & (2**80 - 1))) for _ in range(count)]
    async with await world.connect() as connection:
        ((owner,),) = await (await connection.execute("SELECT created_by FROM api_keys LIMIT 1")).fetchall()
        cursor = connection.cursor()
        await cursor.executemany(
            "INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)"
            " VALUES (%s, %s, %s, 'bulk', 'qd_test_00000000', %s, '{}', %s)",
            [(id_, world.workspace_id, id_, uuid4().bytes + uuid4().bytes, owner) for id_ in ids],
        )
    return sorted(map(str, ids))


async def test_record_has_exactly_the_fields_of_the_interface(world: World) -> None:
    (item,) = (await world.list_keys()).json()["items"]
    assert set(item) == {
        "id", "label", "prefix", "permissions", "created_at", "created_by", "expires_at", "last_used_at", "revoked_at",
    }  # fmt: skip
    assert set(item["created_by"]) == {"user_id", "display_name", "primary_email"}
    assert item["prefix"] == world.key[: len("qd_test_") + 8]
    assert item["expires_at"] is None
    assert item["revoked_at"] is None
    assert item["created_at"].endswith("Z")


async def test_pages_contain_every_key_of_one_instant_once(world: World) -> None:
    own = [item["id"] for item in (await world.list_keys()).json()["items"]]
    every = sorted(own + await add_keys(world, 210 - len(own)))
    for limit in (7, 70, 199, 200):
        assert await walk(world, "asc", limit) == every
        assert await walk(world, "desc", limit) == every[::-1]


async def test_pages_of_one_key(world: World) -> None:
    await add_keys(world, 4)
    assert len(await walk(world, "asc", 1)) == 5


async def test_page_that_ends_at_the_last_key_has_no_cursor(world: World) -> None:
    await add_keys(world, 9)
    page = (await world.list_keys("?limit=10")).json()
    assert len(page["items"]) == 10
    assert page["next_cursor"] is None
    half = (await world.list_keys("?limit=5")).json()
    rest = (await world.list_keys(f"?limit=5&after={half['next_cursor']}")).json()
    assert len(rest["items"]) == 5
    assert rest["next_cursor"] is None


async def test_a_cursor_may_be_the_last_key(world: World) -> None:
    (item,) = (await world.list_keys()).json()["items"]
    assert (await world.list_keys(f"?after={item['id']}")).json() == {"items": [], "next_cursor": None}


async def test_newest_first_and_fifty_by_default(world: World) -> None:
    ids = await add_keys(world, 60)
    page = (await world.list_keys()).json()
    assert len(page["items"]) == 50
    assert [item["id"] for item in page["items"]] == ids[:-51:-1]
    assert (await world.list_keys("?order=desc")).json() == page


async def test_revoked_keys_are_listed(world: World) -> None:
    created = (await world.post("/v1/api-keys", {"label": "gone", "permissions": []})).json()
    await world.post(f"/v1/api-keys/{created['id']}/revoke", None)
    listed = {item["id"]: item for item in (await world.list_keys()).json()["items"]}
    assert listed[created["id"]]["revoked_at"] is not None


BAD_QUERIES = [
        "?limit=0", "?limit=201", "?limit=-1", "?limit=", "?limit=x", "?limit=1.0", "?limit=%2B5", "?limit=5_0",
        "?limit=%205", "?limit=５", "?limit=99999999999999999999", "?limit=1&limit=1", "?order=up", "?order=",
        "?order=ASC", "?order=asc&order=asc", "?after=", "?after=x", f"?after={{{SOME_ID}}}", f"?after={SOME_ID.hex}",
        f"?after=urn:uuid:{SOME_ID}", f"?after={SOME_ID}", "?limit=%ff",
]  # fmt: skip


async def test_a_bad_limit_cursor_or_order_is_400(world: World) -> None:
    for query in BAD_QUERIES:
        assert error_of(await world.list_keys(query)) == (400, "invalid_request"), query


async def test_a_foreign_cursor_cannot_be_told_from_an_unknown_one(world: World, server: Server) -> None:
    other = await World.create(server.database_url, world.http)
    (foreign,) = (await other.list_keys()).json()["items"]
    answers = [await world.list_keys(f"?after={foreign['id']}"), await world.list_keys(f"?after={uuid4()}")]
    assert [error_of(answer) for answer in answers] == [(400, "invalid_request")] * 2
    assert answers[0].content == answers[1].content


async def test_workspace_header_is_required_and_must_be_a_uuid(world: World) -> None:
    assert error_of(await world.get("/v1/api-keys")) == (400, "invalid_request")
    bad = await world.get("/v1/api-keys", headers={"Service-Workspace": "x"})
    assert error_of(bad) == (400, "invalid_request")
    doubled = httpx.Headers([*world.headers().items(), *[("Service-Workspace", str(world.workspace_id))] * 2])
    assert error_of(await world.http.get("/v1/api-keys", headers=doubled)) == (400, "invalid_request")


async def test_unreadable_workspace_is_404(world: World, server: Server) -> None:
    """Same status, same bytes: no such workspace, somebody else's, no permission to read, a session token."""
    other = await World.create(server.database_url, world.http)
    blind = await world.new_key(Permission.KEY_MANAGE, Permission.SESSION_MANAGE, Permission.SKILL_MANAGE)
    token = await world.new_token(await world.new_session())
    answers = [
        await world.get("/v1/api-keys", headers={"Service-Workspace": str(uuid4())}),
        await world.get("/v1/api-keys", headers={"Service-Workspace": str(other.workspace_id)}),
        await world.list_keys(key=blind),
        await world.list_keys(key=token),
    ]
    assert {error_of(answer) for answer in answers} == {(404, "not_found")}
    assert len({answer.content for answer in answers}) == 1


async def test_order_of_checks(world: World) -> None:
    revoked, blind = await world.revoked_key(), await world.new_key(Permission.KEY_MANAGE)
    assert error_of(await world.get("/v1/api-keys?limit=x", key=revoked)) == (401, "unauthorized")
    assert error_of(await world.get("/v1/api-keys?limit=x", key=blind)) == (400, "invalid_request")
    assert error_of(await world.list_keys("?limit=x", key=blind)) == (400, "invalid_request")


async def test_created_by_still_renders_after_the_person_has_left(world: World) -> None:
    from quarterdeck.api_keys.model import CreateApiKeyBody
    from quarterdeck.workspaces import service

    email = f"{uuid4().hex}@example.com"
    async with await world.connect() as connection:
        await members.add_by_operator(connection, world.workspace_id, email)
        body = CreateApiKeyBody("theirs", [Permission.WORKSPACE_READ])
        created = await service.create_key(connection, "test", world.workspace_id, body, email)
        left = await members.remove_by_operator(connection, world.workspace_id, email)
    assert [key.id for key in left] == [created.id]
    listed = {item["id"]: item for item in (await world.list_keys()).json()["items"]}
    assert listed[str(created.id)]["created_by"]["primary_email"] == email
    assert listed[str(created.id)]["revoked_at"] is not None
    assert error_of(await world.list_keys(key=str(created.secret))) == (401, "unauthorized")


async def test_last_used_is_noted_off_the_request_path(world: World) -> None:
    unused = await world.new_key(label="unused")

    async def used() -> set[str]:
        items = (await world.list_keys()).json()["items"]
        return {item["label"] for item in items if item["last_used_at"] is not None}

    async def both_used() -> bool:
        return await used() == {"test", "unused"}

    assert await eventually(used) == {"test"}
    session_id = await world.new_session()
    await world.submit(session_id, key=unused)
    await eventually(both_used)
