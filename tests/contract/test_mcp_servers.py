"""Operations on MCP servers: what is kept, what is refused."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from tests.world import Server, World, error_of

URL = "https://tools.example.com/mcp?token=shh"
INVALID = (400, "invalid_request")


async def create(world: World, **given: object) -> dict[str, Any]:
    answer = await world.post("/v1/mcp-servers", {"name": "tools", "url": URL} | given)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def told(world: World) -> list[tuple[str, str, Any]]:
    """What the audit log says."""
    query = (
        "SELECT action, object_name, detail FROM audit_events WHERE workspace_id = %s AND action ~ 'mcp' ORDER BY id"
    )
    return [(action, name, detail) for action, name, detail in await world.fetch(query, world.workspace_id)]


async def test_create_get_list_change_delete(world: World) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    first = await world.post("/v1/mcp-servers", {"name": "tools", "url": URL}, headers=headers)
    assert (first.status_code, first.headers["etag"]) == (201, '"1"')
    again = await world.post("/v1/mcp-servers", {"name": "tools", "url": URL}, headers=headers)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    created = first.json()
    assert (created["name"], created["url"], created["command"], created["credential_id"]) == ("tools", URL, None, None)
    assert (created["checked_at"], created["check_failure"], created["tool_count"]) == (None, None, 0)
    path = f"/v1/mcp-servers/{created['id']}"
    assert (await world.get(path)).json() == created | {"tools": []}

    taken = await world.post("/v1/mcp-servers", {"name": "tools", "url": "https://other.example.com/"})
    assert error_of(taken) == (409, "conflict")
    other = await create(world, name="0-other")
    assert error_of(await world.patch(path, {"name": "0-other"})) == (409, "conflict")
    listed = (await world.get("/v1/mcp-servers")).json()
    assert listed == {"items": [other, created], "next_cursor": None}

    assert error_of(await world.patch(path, {"name": "x"}, headers={"If-Match": '"7"'})) == (412, "precondition_failed")
    same = await world.patch(path, {"name": "tools", "url": URL})
    assert (same.json(), same.headers["etag"]) == (created, '"1"')
    changed = await world.patch(path, {"name": "issues", "url": "https://issues.example.com/"})
    assert changed.json() == created | {"name": "issues", "url": "https://issues.example.com/", "revision": 2}
    # The name is free again.
    await create(world)

    assert error_of(await world.delete(path, headers={"If-Match": '"1"'})) == (412, "precondition_failed")
    assert (await world.delete(path, headers={"If-Match": '"2"'})).status_code == 204
    assert error_of(await world.get(path)) == error_of(await world.delete(path)) == (404, "not_found")
    known = {"host": "tools.example.com", "credential_id": None}
    assert await told(world) == [
        ("create_mcp_server", "tools", known),
        ("create_mcp_server", "0-other", known),
        ("change_mcp_server", "issues", {"before": "tools", "host": "issues.example.com", "credential_id": None}),
        ("create_mcp_server", "tools", known),
        ("delete_mcp_server", "issues", {"host": "issues.example.com", "credential_id": None}),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"name": None},
        {"name": ""},
        {"name": "Tools"},
        {"name": "to_ols"},
        {"name": "-tools"},
        {"name": "tools\n"},
        {"name": "t" * 33},
        {"url": ""},
        {"url": "ftp://example.com/"},
        {"url": "http://example.com/"},
        {"url": "https://user:pass@example.com/"},
        {"url": "https://127.0.0.1/"},
        {"url": "https://127.0.0.1:65532/"},
        {"url": "http://localhost:65533/mcp"},
        {"url": "https://[::1]:65533/"},
        {"url": "https://[::ffff:10.0.0.1]/"},
        {"url": "https://[64:ff9b::7f00:1]/"},
        {"url": "https://localhost./"},
        {"url": "https://tools.localhost/"},
        {"url": "https://0x7f000001/"},
        {"url": "https://2130706433/"},
        {"url": "https://169.254.169.254/latest"},
        {"url": "https://example.com:22/"},
        {"url": "https://example.com/#part"},
        {"url": "https://example.com/" + "x" * 2000},
        {"url": None},
        {"url": None, "command": "unknown"},
        {"command": "unknown"},
        {"url": None, "command": ""},
        {"credential_id": "x"},
        {"credential_id": "0192f0dd-2c91-7b38-8d06-5e1a7c3f9b11"},
    ],
    ids=str,
)
async def test_invalid_servers_are_refused_at_creation_and_change(world: World, given: dict[str, Any]) -> None:
    refused = await world.post("/v1/mcp-servers", {"name": "new", "url": URL} | given)
    assert error_of(refused) == INVALID
    server_id = await world.new_mcp_server()
    assert error_of(await world.patch(f"/v1/mcp-servers/{server_id}", given)) == INVALID
    assert (await world.get(f"/v1/mcp-servers/{server_id}")).json()["revision"] == 1


async def test_a_credential_is_one_of_the_workspace_and_stays_while_it_is_used(world: World, server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        foreign = await (await World.create(server.database_url, http)).new_credential()
    assert error_of(await world.post("/v1/mcp-servers", {"name": "x", "url": URL, "credential_id": foreign})) == INVALID
    credential_id = await world.new_credential()
    created = await create(world, credential_id=credential_id)
    assert created["credential_id"] == credential_id
    path = f"/v1/mcp-servers/{created['id']}"
    assert error_of(await world.delete(f"/v1/credentials/{credential_id}")) == (409, "conflict")
    assert (await world.patch(path, {"credential_id": None})).json()["credential_id"] is None
    assert error_of(await world.patch(path, {"credential_id": foreign})) == INVALID
    assert (await world.delete(f"/v1/credentials/{credential_id}")).status_code == 204


async def test_who_may_choose_the_server_that_gets_a_credential(world: World) -> None:
    """Its URL counts too: otherwise the secret could be sent to the caller's own address."""
    permissions = (Permission.WORKSPACE_READ, Permission.AGENT_MANAGE)
    key = await world.new_key(*permissions)
    credential_id = await world.new_credential()
    path = f"/v1/mcp-servers/{(await create(world, credential_id=credential_id))['id']}"
    given = {"name": "mine", "url": "https://mine.example.com/", "credential_id": credential_id}
    refused = [await world.post("/v1/mcp-servers", given, key=key)]
    for body in ({"url": given["url"]}, {"credential_id": await world.new_credential()}):
        refused.append(await world.patch(path, body, key=key))
    for allowed in ({"name": "renamed", "url": URL}, {"credential_id": None}):
        assert (await world.patch(path, allowed, key=key)).status_code == 200
    refused.append(await world.patch(path, {"credential_id": credential_id}, key=key))
    for answer in refused:
        assert error_of(answer) == (403, "forbidden")
        assert "credential.manage" in answer.text
    own = await world.new_key(*permissions, Permission.CREDENTIAL_MANAGE)
    assert (await world.post("/v1/mcp-servers", given, key=own)).status_code == 201
