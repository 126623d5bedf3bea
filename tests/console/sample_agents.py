"""Agents, MCP servers and credentials of the sample workspace."""

from typing import Any

import msgspec
from msgspec import Struct

from tests.workers import at_rest
from tests.world import World

_FIRST = """You help the support team of a harbour.

Sort new tickets by urgency. Answer questions about opening hours, berths and invoices yourself.
Hand everything about accidents to a person at once.
"""
_SECOND = _FIRST + "\nWrite in the language of the customer. Never promise a refund.\n"
_TOOLS: list[dict[str, Any]] = [
    {
        "name": "search_tickets",
        "description": "Searches the tickets of the support team by text, state and customer.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "state": {"type": "string"}}},
        "read_only": True,
    },
    {
        "name": "get_ticket",
        "description": "Returns one ticket with its messages.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        "read_only": True,
    },
    {
        "name": "reply",
        "description": "Sends a reply to the customer and closes the ticket.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}},
        "read_only": False,
    },
]
_TOOL = """
INSERT INTO mcp_tools (server_id, name, definition, definition_sha256)
VALUES (%s, %s, %s::jsonb, sha256(%s::text::bytea))
"""


class SampleAgents(Struct, frozen=True):
    agent_id: str
    session_id: str
    server_id: str


async def add_agents(world: World, skill_id: str) -> SampleAgents:
    """Needs a worker. The servers were not really asked: their checks are written into the database."""
    server_id = await _servers(world)
    first = {"instructions": _FIRST, "settings": {"temperature": 0.4}, "skills": [{"skill_id": skill_id, "version": 1}]}
    agent_id = (await _post(world, "/v1/agents", {"name": "Support triage", "version": first}))["id"]
    second = first | {
        "instructions": _SECOND,
        "skills": [{"skill_id": skill_id}],
        "mcp_servers": [server_id],
        "tool_policy": {"tickets__search_tickets": "allow", "tickets__reply": "ask", "bash": "deny"},
        "limits": {"run": {"max_cost_usd": 0.5}, "session": {"max_cost_usd": 5}},
        "sandbox": None,
    }
    await _post(world, f"/v1/agents/{agent_id}/versions", second)
    third = second | {"output_schema": {"type": "object", "properties": {"urgency": {"enum": ["low", "high"]}}}}
    await _post(world, f"/v1/agents/{agent_id}/versions", third)
    await _change(world, f"/v1/agents/{agent_id}", {"default_version": 2})
    await _post(world, "/v1/agents", {"name": "Release writer", "version": {"instructions": "Write release notes."}})
    session = {"title": "Ticket 4711", "agent": {"agent_id": agent_id}, "limits": {"run": {"max_cost_usd": 2}}}
    # Without the server, which nobody can reach.
    session_id = (await _post(world, "/v1/sessions", session | {"mcp_servers": []}))["id"]
    answer = await world.submit(session_id, "A customer asks for the opening hours in August.")
    assert answer.status_code == 200, answer.text
    await at_rest(world, session_id)
    return SampleAgents(agent_id, session_id, server_id)


async def _servers(world: World) -> str:
    token = {"name": "Ticket system", "kind": "bearer", "secret": "planted-sample-token"}
    credential_id = (await _post(world, "/v1/credentials", token))["id"]
    oauth = {"kind": "oauth_client_credentials", "token_url": "https://auth.harbour.example/token", "scope": "invoices"}
    await _post(world, "/v1/credentials", oauth | {"name": "Billing", "secret": "another-sample", "client_id": "desk"})
    url = "https://tickets.harbour.example/mcp"
    server = {"name": "tickets", "url": url, "credential_id": credential_id}
    server_id: str = (await _post(world, "/v1/mcp-servers", server))["id"]
    billing = {"name": "billing", "url": "https://billing.harbour.example/mcp"}
    billing_id = (await _post(world, "/v1/mcp-servers", billing))["id"]
    await world.execute("UPDATE mcp_servers SET checked_at = now() WHERE id IN (%s, %s)", server_id, billing_id)
    failure = "billing.harbour.example could not be resolved."
    await world.execute("UPDATE mcp_servers SET check_failure = %s WHERE id = %s", failure, billing_id)
    for tool in _TOOLS:
        definition = msgspec.json.encode(tool).decode()
        await world.execute(_TOOL, server_id, tool["name"], definition, definition)
    return server_id


async def _post(world: World, path: str, body: object) -> dict[str, Any]:
    answer = await world.http.post(path, headers=world.headers(), json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def _change(world: World, path: str, body: object) -> None:
    answer = await world.http.patch(path, headers=world.headers(), json=body)
    assert answer.status_code == 200, answer.text
