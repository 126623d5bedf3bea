"""Agents and their versions."""

import asyncio
from typing import Any

from quarterdeck.core.actors import Permission
from tests.contract.agent_requests import change_agent, new_agent, push
from tests.contract.skill_requests import walk, with_versions
from tests.world import World, error_of

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
TOOL = {"name": "crm_find", "description": "Finds.", "parameters": {"type": "object"}}
EMPTY: dict[str, Any] = {
    "model": None,
    "settings": {"temperature": None, "max_output_tokens": None, "reasoning_effort": None},
    "instructions": None,
    "skills": [],
    "client_tools": [],
    "mcp_servers": [],
    "tool_policy": {},
    "limits": {
        "run": {"max_cost_usd": None, "max_tokens": None},
        "session": {"max_cost_usd": None, "max_tokens": None},
    },
    "sandbox": None,
    "output_schema": None,
    "fallback_models": [],
}


async def test_an_agent_with_versions(world: World) -> None:
    skill_id = await with_versions(world, 1)
    server = await world.post("/v1/mcp-servers", {"name": "tools", "url": "https://example.com/mcp"})
    assert server.status_code == 201, server.text
    first = {
        "model": "demo",
        "settings": {"temperature": 0.5, "max_output_tokens": 100, "reasoning_effort": "low"},
        "instructions": "Be brief.",
        "skills": [{"skill_id": skill_id, "version": 1}],
        "client_tools": [TOOL],
        "mcp_servers": [server.json()["id"]],
        "tool_policy": {"crm_*": "ask"},
        "limits": EMPTY["limits"] | {"run": {"max_cost_usd": 1.5, "max_tokens": None}},
        "sandbox": None,
        "output_schema": SCHEMA,
        "fallback_models": ["openai:gpt-5", "demo"],
    }
    answer = await world.post("/v1/agents", {"name": "Writer", "version": first})
    assert answer.status_code == 201, answer.text
    agent = answer.json()
    path = f"/v1/agents/{agent['id']}"
    assert (agent["latest_version"], agent["default_version"], agent["model"]) == (1, None, "demo")
    read = await world.get(path)
    assert (read.json(), read.headers["etag"]) == (agent, f'"{agent["revision"]}"')

    pushed = await push(world, agent["id"], {"instructions": "Be long."})
    # The default of the server, as for a new session.
    default = (await world.post("/v1/sessions", {})).json()["sandbox"]
    assert {name: pushed[name] for name in EMPTY} == EMPTY | {"instructions": "Be long.", "sandbox": default}
    versions = [(await world.get(f"{path}/versions/{number}")).json() for number in (1, 2)]
    assert {name: versions[0][name] for name in first} == first
    assert versions[1] == pushed
    for query, order in (("", [2, 1]), ("&order=asc", [1, 2])):
        listed = (await world.get(f"{path}/versions?limit=9{query}")).json()["items"]
        expected = [versions[number - 1] for number in order]
        assert listed == [{name: one[name] for name in listed[0]} for one in expected]
        assert "instructions" not in listed[0]

    diff = (await world.get(f"{path}/diff?base=1&head=2")).json()
    assert (diff["base"], diff["head"]) == (1, 2)
    found = {one["field"]: one for one in diff["fields"]}
    assert set(found) == set(EMPTY) - ({"sandbox"} if default is None else set())
    if default is not None:
        assert found["sandbox"] == {"field": "sandbox", "before": None, "after": {}, "diff": None}
    assert found["model"] == {"field": "model", "before": "demo", "after": None, "diff": None}
    lines = "--- a/instructions\n+++ b/instructions\n@@ -1 +1 @@\n-Be brief.\n\\ No newline at end of file\n"
    assert found["instructions"]["diff"] == f"{lines}+Be long.\n\\ No newline at end of file\n"
    assert '-  "crm_*": "ask"' in found["tool_policy"]["diff"]
    assert (found["output_schema"]["before"], found["output_schema"]["after"]) == (SCHEMA, None)
    assert (await world.get(f"{path}/diff?base=2&head=2")).json()["fields"] == []
    for missing in (f"{path}/versions/3", f"{path}/diff?base=1&head=3"):
        assert error_of(await world.get(missing)) == (404, "not_found")

    entries = (
        "SELECT action, object_type, detail FROM audit_events WHERE workspace_id = %s AND action LIKE %s ORDER BY id"
    )
    assert await world.fetch(entries, agent["workspace_id"], "%agent%") == [
        ("create_agent", "agent", {"name": "Writer", "version": 1}),
        ("push_agent_version", "agent_version", {"agent_id": agent["id"], "version": 2}),
    ]
    # The skill can be deleted neither while the version is the current one nor later.
    assert error_of(await world.delete(f"/v1/skills/{skill_id}")) == (409, "conflict")


async def test_roll_back_archive_and_rename(world: World) -> None:
    agent_id = await new_agent(world, "Writer", {"model": "demo"}, {})
    path = f"/v1/agents/{agent_id}"
    rolled_back = await change_agent(world, agent_id, default_version=1)
    assert (rolled_back["default_version"], rolled_back["latest_version"], rolled_back["model"]) == (1, 2, "demo")
    assert await change_agent(world, agent_id, default_version=1) == rolled_back
    assert (await change_agent(world, agent_id, default_version=None))["model"] is None
    for body in ({"default_version": 3}, {"default_version": 0}, {"name": ""}, {"archived": None}):
        assert error_of(await world.patch(path, body)) == (400, "invalid_request")
    stale = await world.patch(path, {"name": "x"}, headers={"If-Match": '"1"'})
    assert error_of(stale) == (412, "precondition_failed")
    stale = await world.post(f"{path}/versions", {}, headers={"If-Match": '"1"'})
    assert error_of(stale) == (412, "precondition_failed")

    other = await new_agent(world, "Reader")
    taken = await world.post("/v1/agents", {"name": "Writer"})
    assert error_of(taken) == (409, "conflict")
    assert error_of(await world.patch(f"/v1/agents/{other}", {"name": "Writer"})) == (409, "conflict")
    await change_agent(world, agent_id, archived=True)
    await change_agent(world, other, name="Writer")
    assert error_of(await world.post(f"{path}/versions", {})) == (409, "conflict")
    assert error_of(await world.patch(path, {"archived": False})) == (409, "conflict")
    assert error_of(await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})) == (400, "invalid_request")
    assert [one["id"] for one in await walk(world, "/v1/agents")] == [other]
    assert [one["id"] for one in await walk(world, "/v1/agents", archived="true")] == [agent_id]
    assert (await change_agent(world, agent_id, archived=False, name="Third"))["archived_at"] is None
    assert [one["id"] for one in await walk(world, "/v1/agents", limit=1, order="asc")] == [agent_id, other]


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


BAD_VERSIONS: list[Any] = [
    {"model": "nobody:x"},
    {"fallback_models": ["nobody:x"]},
    {"fallback_models": ["demo", "demo"]},
    {"fallback_models": [f"openai:{number}" for number in range(9)]},
    {"fallback_models": None},
    {"skills": [{"skill_id": "0192f0c9-10e4-7f6b-a3c1-90e27d5b4f03"}]},
    {"mcp_servers": ["0192f0c9-10e4-7f6b-a3c1-90e27d5b4f03"]},
    {"client_tools": [TOOL, TOOL]},
    {"client_tools": [TOOL | {"name": "current_time"}]},
    {"client_tools": [TOOL | {"parameters": {"type": "array"}}]},
    {"output_schema": {"type": "nonsense"}},
    {"output_schema": {"properties": {"a": {"$ref": "https://example.com/schema"}}}},
    {"output_schema": {"properties": {f"p{number}": {} for number in range(600)}}},
    {"output_schema": {"description": "x" * 70_000}},
    {"output_schema": _deep(200)},
    {"output_schema": {"description": "\0"}},
    {"limit": {}},
    {"limits": {"run": {"max_cost_usd": -1}}},
    {"sandbox": "container"},
    {"sandbox": {"kind": "container"}},
    [],
]


async def test_a_bad_version_is_400_and_stores_nothing(world: World) -> None:
    agent_id = await new_agent(world, "Writer")
    for version in BAD_VERSIONS:
        pushed = await world.post(f"/v1/agents/{agent_id}/versions", version)
        assert error_of(pushed) == (400, "invalid_request"), str(version)[:80]
        created = await world.post("/v1/agents", {"name": "Other", "version": version})
        assert error_of(created) == (400, "invalid_request"), str(version)[:80]
    assert [one["name"] for one in await walk(world, "/v1/agents")] == ["Writer"]
    assert (await world.get(f"/v1/agents/{agent_id}")).json()["latest_version"] is None


async def test_pushes_at_once_are_numbered_without_gaps(world: World) -> None:
    agent_id = await new_agent(world, "Writer")
    bodies: list[dict[str, Any]] = [{"instructions": str(number)} for number in range(8)] + [{"model": "nobody:x"}] * 4
    answers = await asyncio.gather(*(world.post(f"/v1/agents/{agent_id}/versions", body) for body in bodies))
    assert sorted(answer.json()["version"] for answer in answers if answer.status_code == 201) == list(range(1, 9))
    key = {"Idempotency-Key": "once"}
    again = [await world.post(f"/v1/agents/{agent_id}/versions", {}, headers=key) for _ in range(2)]
    assert again[0].json() == again[1].json()
    assert again[0].json()["version"] == 9
    changed = await world.post(f"/v1/agents/{agent_id}/versions", {"model": "demo"}, headers=key)
    assert error_of(changed)[0] == 409
    creations = [world.post("/v1/agents", {"name": "Same"}) for _ in range(4)]
    assert sorted(answer.status_code for answer in await asyncio.gather(*creations)) == [201, 409, 409, 409]


async def test_callers_without_the_permission(world: World) -> None:
    agent_id = await new_agent(world, "Writer", {})
    reader = await world.new_key(Permission.WORKSPACE_READ, Permission.SKILL_MANAGE, Permission.SESSION_MANAGE)
    for path, body in (("/v1/agents", {"name": "x"}), (f"/v1/agents/{agent_id}/versions", {})):
        assert error_of(await world.post(path, body, key=reader)) == (403, "forbidden")
    assert error_of(await world.patch(f"/v1/agents/{agent_id}", {}, key=reader)) == (403, "forbidden")
    # Whoever may create sessions may use the agents of the workspace.
    used = await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}}, key=reader)
    assert used.status_code == 201
