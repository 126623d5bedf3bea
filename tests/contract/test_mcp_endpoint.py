"""/mcp with the official client over HTTP: what a caller can do there, and what it leaves behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from quarterdeck.api.mcp_endpoint.endpoint import Sites
from quarterdeck.core.actors import Permission
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.setting_types import HostNames, Networks, Origins
from quarterdeck.core.settings import HttpSettings, ServerSettings
from tests.waiting_runs import approval, new_actions, wait_for
from tests.workers import eventually, working
from tests.world import Server, World, error_of, serving

JSON_RPC = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
# The handshake of the protocol until 2025, and what the client negotiates itself.
MODES = ("legacy", "auto")
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def connected(server: Server, key: str, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=120) as client:
            yield client


async def call(client: Client, tool: str, **arguments: object) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text)


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.long
async def test_the_official_client(database_url: str, tmp_path: Path) -> None:
    """With room for one event stream: whoever waits gets it only if those who left have been given up."""
    with serving(database_url, tmp_path, STREAM_PER_CREDENTIAL=1) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            for mode in MODES:
                await _leave_while_waiting(world, server, mode)
            with working(database_url, tmp_path):
                for mode in MODES:
                    async with connected(server, world.key, mode) as client:
                        await _converse(client, mode)
                session_id, other_id = await world.new_session(), await world.new_session()
                async with connected(server, await world.new_token(session_id)) as client:
                    answered = await call(client, "send_input", session_id=session_id, text="hello", wait_seconds=100)
                    assert answered["state"] == "succeeded"
                    unseen = "No such session, or this credential cannot see it."
                    assert await refusal(client, "send_input", session_id=other_id, text="hello") == unseen


async def _leave_while_waiting(world: World, server: Server, mode: str) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id)).json()["run_id"]
    follow = world.headers() | {"Accept": "text/event-stream"}

    async def is_free() -> bool:
        async with world.http.stream("GET", f"/v1/sessions/{session_id}/events", headers=follow) as answer:
            return answer.status_code == 200

    async def is_taken() -> bool:
        # More than once: the server may not have noticed yet that the last question was closed.
        return not any([await is_free() for _ in range(5)])

    async def wait() -> Any:
        async with connected(server, world.key, mode) as client:
            return await call(client, "get_run", run_id=run_id, wait_seconds=100)

    for _ in range(2):
        leaving = asyncio.create_task(wait())
        await eventually(is_taken)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await eventually(is_free)
    staying = asyncio.create_task(wait())
    await eventually(is_taken)
    # Without an event stream nobody waits: one caller would take all connections of the process.
    if mode == "auto":
        assert (await wait())["state"] == "queued"
    await wait_for(world, run_id)
    (action_id,) = await new_actions(world, session_id, run_id, [approval()])
    told = await staying
    assert (told["state"], [one["id"] for one in told["waiting_for"]]) == ("waiting", [action_id])


async def _converse(client: Client, mode: str) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        "list_sessions", "create_session", "send_input", "read_log", "get_run", "list_actions", "resolve_action",
    }  # fmt: skip
    assert all(tool.input_schema["type"] == "object" for tool in tools.values())
    session = await call(client, "create_session", title="From a client", model="demo", idempotency_key=mode)
    session_id = session["id"]
    again = await call(client, "create_session", title="From a client", model="demo", idempotency_key=mode)
    assert again["id"] == session_id
    assert session_id in [one["id"] for one in (await call(client, "list_sessions"))["items"]]
    answered = await call(client, "send_input", session_id=session_id, text="hello", wait_seconds=100)
    assert (answered["outcome"], answered["state"]) == ("new_run", "succeeded")
    assert "hello" in answered["answer"]
    waiting = await call(client, "send_input", session_id=session_id, text="note: buy milk", wait_seconds=100)
    assert waiting["state"] == "waiting"
    (action,) = waiting["waiting_for"]
    listed = (await call(client, "list_actions", session_id=session_id))["items"]
    assert [one["id"] for one in listed] == [action["id"]]
    assert "decision" in await refusal(client, "resolve_action", action_id=action["id"], result="x")
    await call(client, "resolve_action", action_id=action["id"], decision="allow")
    done = await call(client, "get_run", run_id=waiting["run_id"], wait_seconds=100)
    assert done["state"] == done["run"]["state"] == "succeeded"
    log = await call(client, "read_log", session_id=session_id, limit=200)
    assert [one["data"]["text"] for one in log["items"] if one["type"] == "note"] == ["buy milk"]
    last = await call(client, "read_log", session_id=session_id, limit=2)
    assert last["items"] == log["items"][-2:]
    since = await call(client, "read_log", session_id=session_id, after=log["items"][0]["id"], limit=200)
    assert since["items"] == log["items"][1:]


async def test_refusals(world: World, server: Server) -> None:
    for key in ("", "nonsense", await world.revoked_key()):
        headers = ACCEPT | ({"Authorization": f"Bearer {key}"} if key else {})
        answer = await world.http.post("/mcp", json=JSON_RPC, headers=headers)
        assert error_of(answer) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    too_large = await world.http.post("/mcp", content=b"x" * 2**21, headers=world.headers() | ACCEPT)
    assert error_of(too_large) == (413, "invalid_request")
    for method in ("GET", "DELETE", "PUT"):
        answer = await world.http.request(method, "/mcp", headers=ACCEPT)
        assert error_of(answer) == (401, "unauthorized"), "before the method"
        answer = await world.http.request(method, "/mcp", headers=world.headers() | ACCEPT)
        assert (error_of(answer), answer.headers["allow"]) == ((405, "invalid_request"), "POST")
    session_id = await world.new_session()
    async with connected(server, await world.new_key(Permission.SESSION_MANAGE)) as writer:
        sent = await call(writer, "send_input", session_id=session_id, text="x")
        assert sent["outcome"] == "new_run"
        assert "workspace.read" in sent["next"]
        assert "workspace.read" in await refusal(writer, "get_run", run_id=sent["run_id"])
        missing = await refusal(writer, "send_input", session_id=str(uuid4()), text="x")
        assert missing == "No such session, or this credential cannot see it."
    session_id = await world.new_session()
    async with connected(server, await world.new_key(Permission.WORKSPACE_READ)) as reader:
        assert await refusal(reader, "create_session") == "This credential lacks the permission session.manage."
        assert "session.manage" in await refusal(reader, "send_input", session_id=session_id, text="x")
        assert (await call(reader, "read_log", session_id=session_id))["items"] == []
        assert "no tool" in await refusal(reader, "delete_session", session_id=session_id)
        assert "Invalid arguments" in await refusal(reader, "read_log", session_id="../whoami")
        assert "Invalid arguments" in await refusal(reader, "read_log", session_id=session_id, limit=0)


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({}, True),
        ({"Host": "localhost:80"}, True),
        ({"Host": "[::1]"}, True),
        ({"Host": "192.0.2.7"}, True),
        ({"Origin": "http://localhost:6274"}, True),
        ({"Host": "attacker.example"}, False),
        ({"Host": "attacker.example", "Origin": "http://attacker.example"}, False),
        ({"Host": "localhost.attacker.example"}, False),
        ({"Origin": "http://attacker.example"}, False),
        ({"Origin": "http://localhost.attacker.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://["}, False),
    ],
    ids=str,
)
async def test_foreign_sites_are_refused(world: World, headers: dict[str, str], is_own: bool) -> None:
    answer = await world.http.post("/mcp", json=JSON_RPC, headers=world.headers() | ACCEPT | headers)
    if is_own:
        assert answer.status_code == 200, answer.text
    else:
        assert error_of(answer) == (403, "forbidden")
        assert "QUARTERDECK_HTTP_" in answer.json()["error"]["message"]
        # Before the credential and the method are looked at.
        refused = await world.http.get("/mcp", headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")


def test_hosts_of_servers_that_others_can_reach() -> None:
    def is_own(host: str, origin: str | None = None, address: str = "127.0.0.1", **settings: object) -> bool:
        sites = Sites(ServerSettings(host=address), HttpSettings(**settings))  # type: ignore[arg-type]
        headers = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin else [])]
        try:
            sites.check({"type": "http", "headers": headers})
        except ServiceError:
            return False
        return True

    names, listed = HostNames.parse("qd.example.com"), Origins.parse("https://app.example.com")
    proxies = Networks.parse("127.0.0.1")
    assert is_own("qd.example.com", public_hosts=names)
    assert is_own("QD.example.com:8443", "https://qd.example.com", public_hosts=names)
    assert not is_own("other.example.com", public_hosts=names, address="0.0.0.0")
    assert not is_own("other.example.com", public_hosts=names, trusted_proxies=proxies)
    assert is_own("other.example.com", address="0.0.0.0")
    assert is_own("other.example.com", "https://other.example.com", trusted_proxies=proxies)
    assert not is_own("other.example.com", "https://attacker.example", trusted_proxies=proxies)
    assert is_own("other.example.com", "https://app.example.com", trusted_proxies=proxies, cors_origins=listed)
