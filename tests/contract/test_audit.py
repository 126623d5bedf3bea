"""The audit log: every change is in it once, with who, what and where from; what changed nothing is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.core.actors import Permission, Role
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.operation import Operation
from quarterdeck.people import members, profiles
from quarterdeck.workspaces import service as workspaces
from tests.contract.test_callers import SHARED, absent_ids, ids_for, prepare, request
from tests.world import EVERY_PERMISSION, World, bundle, error_of

# Inputs are in the log of their session, and are not written down twice.
# Those of people are in test_members.py, test_invitations.py and test_profiles.py.
CHANGES = [operation for operation in SHARED if operation.method != "GET" and operation.name != "submit_input"]
each_change = pytest.mark.parametrize("operation", CHANGES, ids=lambda operation: operation.name)

ROW = """
SELECT action, object_type, object_id, user_id, api_key_id, session_token_id, address, request_id, detail::text
FROM audit_events WHERE workspace_id = %s ORDER BY id
"""
# Every record there is, but for what is not part of a change: the times at which keys were used, which come a little
# later, and archives, which are there before the version that names them.
TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind = 'r' AND relname <> 'blobs'
"""
RECORDS = "SELECT (to_jsonb(t) - 'last_used_at')::text FROM app.{table} t ORDER BY 1"


@asynccontextmanager
async def sending(world: World, **headers: str) -> AsyncIterator[World]:
    """The same world, whose requests carry these headers."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(base_url=world.http.base_url, timeout=30, headers=names) as http:
        yield World(world.database_url, http)


@asynccontextmanager
async def refusing_entries(world: World) -> AsyncIterator[None]:
    """Of this workspace only: the database is shared with the tests to come."""
    name = f"refuse_{uuid4().hex}"
    await world.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no entry'; END $$"
    )
    await world.execute(
        f"CREATE TRIGGER {name} BEFORE INSERT ON audit_events FOR EACH ROW"
        f" WHEN (NEW.workspace_id = '{world.workspace_id}') EXECUTE FUNCTION {name}()"
    )
    try:
        yield
    finally:
        await world.execute(f"DROP FUNCTION {name} CASCADE")


async def rows(world: World) -> list[tuple[Any, ...]]:
    return await world.fetch(ROW, world.workspace_id)


async def all_records(world: World) -> dict[str, list[tuple[Any, ...]]]:
    tables = [table for (table,) in await world.fetch(TABLES)]
    return {table: await world.fetch(RECORDS.format(table=table)) for table in tables}


async def owner_of(world: World) -> UUID:
    ((owner_id,),) = await world.fetch("SELECT owner_id FROM workspaces WHERE id = %s", world.workspace_id)
    found: UUID = owner_id
    return found


async def listed(world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await world.get(f"/v1/audit-events{query}")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def walk(world: World, query: str, meanwhile: Any = None) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = (await world.get(f"/v1/audit-events?{query}{cursor}")).json()
        found += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&after={page['next_cursor']}"
        if meanwhile is not None:
            await meanwhile()


async def add_events(world: World, milliseconds: list[int], **given: Any) -> list[str]:
    """Straight into the table: one for each of these times."""
    ids = [UUID(int=(one << 80) | (0x7 << 76) | (uuid4().int & (2**62 - 1)) | (2 << 62)) for one in milliseconds]
    values = {"action": "x", "object_type": "skill", "object_id": uuid4(), "user_id": None} | given
    async with await world.connect() as connection:
        await connection.cursor().executemany(
            "INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)"
            " VALUES (%s, %s, %s, %s, %s, %s, '{}')",
            [(one, world.workspace_id, *values.values()) for one in ids],
        )
    return [str(one) for one in ids]


# --- what is written down ---


@each_change
async def test_a_change_leaves_one_entry_and_its_replay_none(world: World, operation: Operation) -> None:
    ids = await ids_for(world, operation)
    key, key_id = await world.new_key_record(EVERY_PERMISSION)
    before = await rows(world)
    workspace = str(world.workspace_id)
    async with sending(world, X_Request_Id="first.request", Idempotency_Key="once") as caller:
        answer = await request(caller, operation, ids, key, workspace)
    assert answer.status_code == operation.success_status, answer.text
    (entry,) = (await rows(world))[len(before) :]
    action, object_type, object_id, *who, address, request_id, detail = entry
    assert action == operation.name
    assert who == [await owner_of(world), key_id, None]
    assert (address, request_id) == ("127.0.0.1", "first.request")
    assert str(object_id) in f"{answer.text} {answer.url}"
    (shown,) = await listed(world, "?limit=1")
    assert (shown["action"], shown["object_type"], shown["object_id"]) == (action, object_type, str(object_id))
    body = answer.json() if answer.content else {}
    for secret in (key, body.get("secret"), body.get("token")):
        assert secret is None or secret[-40:] not in detail
    async with sending(world, X_Request_Id="second.request", Idempotency_Key="once") as caller:
        again = await request(caller, operation, ids, key, workspace)
    assert (again.headers.get("idempotency-replayed") == "true") is operation.idempotent
    # What was deleted is not there any more. A check without a receipt is another one.
    entries = 1 if operation.idempotent or operation.method == "DELETE" else 2
    assert len(await rows(world)) == len(before) + entries


@pytest.mark.long
@each_change
async def test_refused_requests_leave_no_entry(world: World, operation: Operation) -> None:
    ids = await ids_for(world, operation)
    others = [permission for permission in Permission if permission is not operation.permission]
    weak, workspace = await world.new_key(*others), str(world.workspace_id)
    before = await rows(world)
    assert (await request(world, operation, ids, weak, workspace)).status_code in (403, 404)
    if operation.path_ids:
        assert error_of(await request(world, operation, absent_ids(ids), world.key, workspace))[0] == 404
    assert await rows(world) == before


@pytest.mark.long
@each_change
async def test_no_change_without_its_entry(world: World, operation: Operation) -> None:
    """The entry is refused by the database: then nothing of the change may be there."""
    ids = await ids_for(world, operation)
    await prepare(world, operation, ids)
    async with refusing_entries(world):
        before = await all_records(world)
        async with sending(world, Idempotency_Key="once") as caller:
            answer = await request(caller, operation, ids, world.key, str(world.workspace_id))
        assert error_of(answer) == (500, "internal")
        assert await all_records(world) == before
    answer = await request(world, operation, ids, world.key, str(world.workspace_id))
    assert answer.status_code == operation.success_status, "it was the entry that was in the way"


async def test_a_session_token_is_named_with_the_key_that_made_it(world: World) -> None:
    session_id = await world.new_session()
    maker, maker_id = await world.new_key_record(EVERY_PERMISSION)
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=maker)).json()
    run_id = (await world.submit(session_id)).json()["run_id"]
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None, key=token["token"])).status_code == 200
    (event,) = await listed(world, "?action=cancel_run")
    assert (event["session_token_id"], event["api_key_id"]) == (token["id"], str(maker_id))
    assert event["actor"]["user_id"] == str(await owner_of(world))
    assert event["detail"] == {"session_id": session_id}


async def test_unchanged_objects_leave_no_entry(world: World) -> None:
    created = (await world.post("/v1/api-keys", {"label": "x", "permissions": []})).json()
    for _ in range(2):
        assert (await world.post(f"/v1/api-keys/{created['id']}/revoke", None)).status_code == 200
    actions = [event["action"] for event in await listed(world, f"?object_id={created['id']}")]
    assert actions == ["revoke_api_key", "create_api_key"]


async def test_the_log_holds_no_secret_and_no_content(world: World) -> None:
    content = {"title": "marked title", "instructions": "marked instructions"}
    session_id = (await world.post("/v1/sessions", content)).json()["id"]
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()["token"]
    key = (await world.post("/v1/api-keys", {"label": "a", "permissions": []})).json()["secret"]
    run_id = (await world.submit(session_id, "marked input")).json()["run_id"]
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    pushed = await world.push(await world.new_skill(), bundle(**{"notes.md": "marked file"}))
    assert pushed.status_code == 201
    ((log,),) = await world.fetch(
        "SELECT string_agg(a::text, ' ') FROM audit_events a WHERE workspace_id = %s", world.workspace_id
    )
    assert session_id in log
    assert "marked" not in log
    # The title is shown while the session has one, and is not stored.
    (shown,) = await listed(world, "?action=create_session")
    assert shown["object_name"] == "marked title"
    await world.delete(f"/v1/sessions/{session_id}")
    assert [event["object_name"] for event in await listed(world, "?object_type=session")] == [None, None]
    for secret in (world.key, token, key):
        # All but the prefix, which people know a key by.
        assert secret[-38:] not in log


# --- by the operator ---


async def test_operator_actions_are_logged(world: World) -> None:
    email = f"{uuid4().hex}@example.com"
    workspace_id = world.workspace_id
    async with await world.connect() as connection:
        user_id = await members.add_by_operator(connection, workspace_id, email)
        await members.add_by_operator(connection, workspace_id, email)
        await profiles.name_by_operator(connection, email, "Ann")
        await profiles.name_by_operator(connection, email, "Ann")
        await workspaces.configure_workspace(connection, workspace_id, max_key_days=90)
        await workspaces.configure_workspace(connection, workspace_id, name="Test", max_key_days=90)
        body = CreateApiKeyBody("hers", [Permission.WORKSPACE_READ], datetime.now(UTC) + timedelta(days=9))
        key = await workspaces.create_key(connection, "test", workspace_id, body, email)
        await members.remove_by_operator(connection, workspace_id, email)
        await members.remove_by_operator(connection, workspace_id, email)
    events = await listed(world, "?order=asc")
    found = [(event["action"], event["object_type"], event["object_id"], event["detail"]) for event in events]
    told = {"label": "hers", "prefix": key.prefix, "permissions": ["workspace.read"]}
    ((_, _, _, created), (_, _, _, first_key), *rest) = found
    assert [one[0] for one in found[:2]] == ["create_workspace", "create_api_key"]
    assert set(created) == {"name", "max_key_days", "owner", "limits", "retention"}
    assert first_key["label"] == "test"
    assert rest == [
        ("add_member", "member", str(user_id), {"email": email, "role": "member"}),
        ("set_user", "member", str(user_id), {"display_name": "Ann"}),
        ("change_workspace", "workspace", str(workspace_id), {"max_key_days": 90}),
        ("create_api_key", "api_key", str(key.id), told),
        ("remove_member", "member", str(user_id), {"email": email}),
        ("revoke_api_key", "api_key", str(key.id), {"label": "hers"}),
    ]
    for event in events:
        origin = [event[name] for name in ("actor", "api_key_id", "session_token_id", "address", "request_id")]
        assert origin == [None] * 5


async def test_the_operator_changes_nothing_without_an_entry(world: World) -> None:
    email, new = f"{uuid4().hex}@example.com", f"{uuid4().hex}@example.com"
    body, workspace_id = CreateApiKeyBody("x", []), world.workspace_id
    async with await world.connect() as connection:
        await members.add_by_operator(connection, workspace_id, email)
    async with refusing_entries(world), await world.connect() as connection:
        before = await all_records(world)
        for doing in (
            members.add_by_operator(connection, workspace_id, new),
            members.remove_by_operator(connection, workspace_id, email),
            workspaces.create_key(connection, "test", workspace_id, body, None),
            workspaces.configure_workspace(connection, workspace_id, name="x"),
            profiles.name_by_operator(connection, email, "Ann"),
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="no entry"):
                await doing
        assert await all_records(world) == before


async def test_refused_operator_actions_leave_no_entry(world: World) -> None:
    before = await rows(world)
    ((owner,),) = await world.fetch("SELECT email FROM users WHERE id = %s", await owner_of(world))
    async with await world.connect() as connection:
        with pytest.raises(ServiceError, match="owner"):
            await members.remove_by_operator(connection, world.workspace_id, owner)
        with pytest.raises(ServiceError, match="not a member"):
            await workspaces.configure_workspace(connection, world.workspace_id, name="x", owner_email="no@example.com")
    assert await rows(world) == before


async def test_actor_is_shown_after_leaving_the_workspace(world: World) -> None:
    email = f"{uuid4().hex}@example.com"
    async with await world.connect() as connection:
        user_id = await members.add_by_operator(connection, world.workspace_id, email, Role.ADMIN)
        await profiles.name_by_operator(connection, email, "Ann Other")
        body = CreateApiKeyBody("hers", list(EVERY_PERMISSION))
        hers = await workspaces.create_key(connection, "test", world.workspace_id, body, email)
    assert isinstance(hers.secret, str)
    created = (await world.post("/v1/api-keys", {"label": "x", "permissions": []}, key=hers.secret)).json()
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, email)
    ann = {"user_id": str(user_id), "display_name": "Ann Other", "primary_email": email}
    keys = {item["id"]: item for item in (await world.list_keys()).json()["items"]}
    assert keys[created["id"]]["created_by"] == keys[str(hers.id)]["created_by"] == ann
    (event,) = await listed(world, f"?user_id={user_id}")
    assert (event["actor"], event["object_id"]) == (ann, created["id"])


# --- reading it ---


async def test_an_entry_has_exactly_these_fields(world: World) -> None:
    session_id = await world.new_session()
    (event,) = await listed(world, f"?object_id={session_id}")
    assert set(event) == {
        "id", "created_at", "action", "object_type", "object_id", "object_name", "actor", "api_key_id",
        "session_token_id", "device_id", "trusted_job_id", "address", "request_id", "detail",
    }  # fmt: skip
    assert set(event["actor"]) == {"user_id", "display_name", "primary_email"}
    assert event["created_at"].endswith("Z")


async def test_entries_have_the_names_of_their_objects(world: World) -> None:
    skill = (await world.post("/v1/skills", {"name": "before"})).json()
    await world.push(skill["id"], bundle())
    await world.patch(f"/v1/skills/{skill['id']}", {"name": "after"})
    await world.delete(f"/v1/skills/{skill['id']}")
    key = (await world.post("/v1/api-keys", {"label": "ci", "permissions": []})).json()
    await world.post(f"/v1/api-keys/{key['id']}/rotate", {})
    await world.post(f"/v1/api-keys/{key['id']}/revoke", None)
    webhook_id = await world.new_webhook("https://hooks.example.com/secret")
    await world.patch(f"/v1/webhooks/{webhook_id}", {"description": "chat"})
    await world.post(f"/v1/webhooks/{webhook_id}/test", None)
    token = (await world.post(f"/v1/sessions/{await world.new_session()}/tokens", {})).json()
    async with await world.connect() as connection:
        email = f"{uuid4()}@example.com"
        await members.add_by_operator(connection, world.workspace_id, email)
        await profiles.name_by_operator(connection, email, "Ann Other")
        await members.remove_by_operator(connection, world.workspace_id, email)
    names = [(event["action"], event["object_name"]) for event in await listed(world, "?order=asc&limit=200")]
    assert names[-15:] == [
        ("create_skill", "before"),
        ("push_skill_version", "before"),
        ("change_skill", "after"),
        ("delete_skill", "after"),
        ("create_api_key", "ci"),
        ("rotate_api_key", "ci"),
        ("revoke_api_key", "ci"),
        ("create_webhook", "hooks.example.com"),
        ("change_webhook", "chat"),
        ("test_webhook", "chat"),
        ("create_session", None),
        ("create_session_token", token["prefix"]),
        ("add_member", email),
        ("set_user", "Ann Other"),
        ("remove_member", email),
    ]


async def test_each_filter_and_all_together(world: World) -> None:
    owner, other, thing = await owner_of(world), uuid4(), uuid4()
    await world.execute("INSERT INTO users (id, email) VALUES (%s, %s)", other, f"{other}@example.com")
    wanted: dict[str, object] = {"action": "wanted", "object_type": "webhook", "object_id": thing, "user_id": owner}
    (match,) = await add_events(world, [2_000], **wanted)
    differing: dict[str, object] = {"action": "x", "object_type": "skill", "object_id": uuid4(), "user_id": other}
    near = {name: (await add_events(world, [2_000], **wanted | {name: differing[name]}))[0] for name in wanted}
    (earlier,), (later,) = await add_events(world, [1_999], **wanted), await add_events(world, [2_001], **wanted)
    span: dict[str, object] = {"since": "1970-01-01T00:00:02Z", "until": "1970-01-01T00:00:02.001Z"}
    for order in ("asc", "desc"):

        async def found(filters: dict[str, object], order: str = order) -> set[str]:
            query = "&".join(f"{name}={value}" for name, value in filters.items())
            return set(await walk(world, f"limit=1&order={order}&{query}"))

        assert await found(wanted | span) == {match}
        for name, value in wanted.items():
            others = {event for differs, event in near.items() if differs != name}
            assert await found({name: value} | span) == {match} | others, name
            without = {field: kept for field, kept in wanted.items() if field != name}
            assert await found(without | span) == {match, near[name]}, name
        assert await found(wanted | {"since": span["since"]}) == {match, later}
        assert await found(wanted | {"until": span["until"]}) == {match, earlier}
        for nothing in ({"action": "nothing"}, {"user_id": uuid4()}, {"object_id": uuid4()}):
            assert await found(dict(nothing)) == set()


async def test_the_bounds_of_a_time(world: World) -> None:
    ids = await add_events(world, [5_000, 5_001, 5_002], action="timed")

    async def found(since: str, until: str) -> list[str]:
        return [event["id"] for event in await listed(world, f"?action=timed&order=asc&since={since}&until={until}")]

    assert await found("1970-01-01T00:00:05.001Z", "1970-01-01T00:00:05.002Z") == [ids[1]]
    # Events are dated to the millisecond: one of 5.001 is earlier than 5.0015.
    assert await found("1970-01-01T00:00:05.0005Z", "1970-01-01T00:00:05.0015Z") == [ids[1]]
    assert await found("1970-01-01T01:00:05%2B01:00", "1970-01-01T02:00:05.001%2B02:00") == [ids[0]]
    assert await found("1970-01-01T00:00:06Z", "1970-01-01T00:00:05Z") == []
    assert await found("0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59-23:59") == ids
    assert await found("0001-01-01T00:00:00Z", "1969-12-31T00:00:00Z") == []


@pytest.mark.parametrize(
    "query",
    ["object_id=x", "user_id=x", "object_type=nothing", "since=yesterday", "until=2026-03-02T09:30:00", "action=%00",
     "since=1&since=2", "after=x", "limit=201", "order=up"],
)  # fmt: skip
async def test_a_malformed_query_is_400(world: World, query: str) -> None:
    assert error_of(await world.get(f"/v1/audit-events?{query}")) == (400, "invalid_request")


@pytest.mark.long
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("narrow", [False, True])
async def test_paging_is_complete_while_entries_are_added(world: World, order: str, narrow: bool) -> None:
    # Several of one millisecond, and a page of them.
    existed = sorted(await add_events(world, [n // 3 for n in range(3_000, 3_100)], object_id=world.workspace_id))
    if not narrow:
        existed = sorted(existed + [event["id"] for event in await listed(world) if event["id"] not in existed])

    async def add() -> None:
        await add_events(world, [10**12], object_id=world.workspace_id)
        await world.new_session()

    query = f"order={order}&limit=7" + (f"&object_id={world.workspace_id}&action=x" if narrow else "")
    found = await walk(world, query, meanwhile=add)
    assert len(found) == len(set(found))
    assert found == sorted(found, reverse=order == "desc")
    assert [event for event in found if event in existed] == sorted(existed, reverse=order == "desc")


async def test_paging_continues_after_its_cursor_was_deleted(world: World) -> None:
    ids = sorted(await add_events(world, list(range(1, 10)), action="old"), reverse=True)
    first = (await world.get("/v1/audit-events?action=old&limit=3")).json()
    assert [event["id"] for event in first["items"]] == ids[:3]
    await world.execute("DELETE FROM audit_events WHERE id = %s", first["next_cursor"])
    rest = await listed(world, f"?action=old&after={first['next_cursor']}")
    assert [event["id"] for event in rest] == ids[3:]


async def test_one_workspace_does_not_see_anothers_events(world: World) -> None:
    other = await World.create(world.database_url, world.http)
    sessions = {one: await one.new_session() for one in (world, other)}
    for one in (world, other):
        for query in ("", "?order=asc"):
            found = {event["object_id"] for event in await listed(one, query)}
            assert sessions[one] in found
            assert found == {str(row[2]) for row in await rows(one)}
    assert await listed(world, f"?object_id={sessions[other]}") == []
    assert await listed(world, f"?user_id={await owner_of(other)}") == []
