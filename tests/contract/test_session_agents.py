"""Sessions that follow an agent."""

from typing import Any
from uuid import UUID, uuid4

from quarterdeck.runs.model import UsedAgent
from tests.contract.agent_requests import begin_run, change_agent, new_agent, push
from tests.contract.skill_requests import with_versions
from tests.waiting_runs import approval, new_actions, wait_for
from tests.workers import log_of
from tests.world import World, error_of

FIRST = {"model": "demo", "instructions": "First.", "tool_policy": {"add_note": "allow"}, "sandbox": None}
SECOND = {"instructions": "Second.", "tool_policy": {"add_note": "deny"}, "limits": {"run": {"max_tokens": 9}}}
SCHEMA = {"type": "object"}


async def created(world: World, **body: Any) -> dict[str, Any]:
    answer = await world.post("/v1/sessions", body)
    assert answer.status_code == 201, answer.text
    session: dict[str, Any] = answer.json()
    return session


async def read(world: World, session: dict[str, Any]) -> dict[str, Any]:
    answer = await world.get(f"/v1/sessions/{session['id']}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def changed(world: World, session: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = await world.patch(f"/v1/sessions/{session['id']}", body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == await read(world, session)
    after: dict[str, Any] = answer.json()
    return after


async def begun(world: World, session: dict[str, Any]) -> tuple[str, Any]:
    """A run that has begun, and its setup. It is cancelled, so that another can begin."""
    run_id = (await world.submit(session["id"])).json()["run_id"]
    lease = await begin_run(world, run_id)
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    return run_id, lease.setup


async def stored(world: World, session: dict[str, Any]) -> tuple[Any, ...]:
    query = "SELECT model, instructions, tool_policy, limits->'run'->'max_tokens' FROM sessions WHERE id = %s"
    (row,) = await world.fetch(query, session["id"])
    return row


async def test_fields_follow_the_agent_unless_the_session_sets_them(world: World) -> None:
    skill_id = await with_versions(world, 1)
    skills = [{"skill_id": skill_id, "version": None}]
    agent_id = await new_agent(world, "Writer", FIRST | {"skills": skills})
    follows = await created(world, agent={"agent_id": agent_id})
    pinned = await created(world, agent={"agent_id": agent_id, "version": 1}, title="Pinned")
    own = await created(world, agent={"agent_id": agent_id}, model=None, skills=[], settings={"temperature": 1})
    agent = {"agent_id": agent_id, "version": None, "name": "Writer", "current_version": 1}
    assert (follows["agent"], follows["overrides"]) == (agent, [])
    assert {name: follows[name] for name in FIRST} == FIRST
    assert (follows["skills"], follows["effective_model"]) == (skills, "demo")
    assert (own["model"], own["skills"], own["overrides"]) == (None, [], ["model", "settings", "skills"])
    assert (own["instructions"], own["settings"]["temperature"]) == ("First.", 1)

    await push(world, agent_id, SECOND)
    assert (await read(world, follows))["instructions"] == "Second."
    assert (await read(world, follows))["agent"] == agent | {"current_version": 2}
    assert (await read(world, follows))["skills"] == []
    assert await read(world, pinned) == pinned
    by_id = {one["id"]: one for one in (await world.get("/v1/sessions")).json()["items"]}
    for session in (follows, pinned, own):
        whole = await read(world, session)
        listed = by_id[session["id"]]
        for name in ("agent", "overrides", "model", "effective_model", "settings", "skills", "revision"):
            assert listed[name] == whole[name], name
    # The columns change when a run begins, which uses the new version.
    assert (await stored(world, follows))[1:] == ("First.", {"add_note": "allow"}, None)
    run_id, setup = await begun(world, follows)
    assert (setup.agent, setup.instructions, setup.skills) == (UsedAgent(UUID(agent_id), 2), "Second.", [])
    assert (await stored(world, follows))[1:] == ("Second.", {"add_note": "deny"}, 9)
    assert (await read(world, follows))["revision"] == 1
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert run["agent"] == {"agent_id": agent_id, "version": 2}
    _, setup = await begun(world, pinned)
    assert (setup.agent.version, setup.instructions, len(setup.skills)) == (1, "First.", 1)

    await change_agent(world, agent_id, default_version=1)
    assert (await read(world, follows))["instructions"] == "First."
    _, setup = await begun(world, follows)
    assert (setup.agent.version, [skill.skill_id for skill in setup.skills]) == (1, [UUID(skill_id)])
    await change_agent(world, agent_id, archived=True)
    assert (await begun(world, follows))[1].agent.version == 1
    assert error_of(await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})) == (400, "invalid_request")
    assert (await changed(world, follows, agent={"agent_id": agent_id, "version": 2}))["instructions"] == "Second."


async def test_changes_of_a_session_with_an_agent(world: World) -> None:
    agent_id = await new_agent(world, "Writer", FIRST, SECOND)
    other_id = await new_agent(world, "Reader", {"instructions": "Read.", "settings": {"temperature": 0.5}})
    await change_agent(world, agent_id, default_version=1)
    session = await created(world, agent={"agent_id": agent_id})
    # A change of one field leaves the stored values of the others alone: an active run may use them.
    await change_agent(world, agent_id, default_version=2)
    after = await changed(world, session, settings={"temperature": 0.1}, title="x")
    assert (after["overrides"], after["instructions"], after["revision"]) == (["settings"], "Second.", 2)
    assert (await stored(world, session))[1:] == ("First.", {"add_note": "allow"}, None)
    # The same value as the agent's: the field no longer follows it.
    after = await changed(world, session, instructions="Second.")
    assert after["overrides"] == ["instructions", "settings"]
    after = await changed(world, session, agent={"agent_id": other_id})
    assert (after["instructions"], after["settings"]["temperature"], after["tool_policy"]) == ("Second.", 0.1, {})
    assert after["agent"]["name"] == "Reader"
    after = await changed(world, session, inherit=["instructions", "settings", "model"])
    assert (after["instructions"], after["settings"]["temperature"], after["overrides"]) == ("Read.", 0.5, [])
    assert (await changed(world, session, inherit=["instructions"]))["revision"] == after["revision"]

    fork = await world.post(f"/v1/sessions/{session['id']}/fork", {})
    same = ("agent", "overrides", "instructions", "settings", "sandbox")
    assert {name: fork.json()[name] for name in same} == {name: after[name] for name in same}
    await push(world, other_id, {"instructions": "Read on."})
    assert (await read(world, fork.json()))["instructions"] == "Read on."

    left = await changed(world, session, agent=None)
    assert (left["agent"], left["overrides"], left["instructions"]) == (None, [], "Read on.")
    await push(world, other_id, {"instructions": "Stop."})
    assert (await read(world, session))["instructions"] == "Read on."
    (_, setup) = await begun(world, session)
    assert (setup.agent, setup.instructions) == (None, "Read on.")
    joined = await changed(world, session, agent={"agent_id": other_id, "version": 1}, model="demo")
    assert (joined["instructions"], joined["overrides"]) == ("Read.", ["model"])

    query = "SELECT detail->'fields' FROM audit_events WHERE object_id = %s AND action = 'change_session' ORDER BY id"
    fields = [row[0] for row in await world.fetch(query, session["id"])]
    assert fields[:2] == [["title", "settings", "overrides"], ["overrides"]]
    assert {"agent", "tool_policy"} <= set(fields[2])
    for body in (
        {"inherit": ["instructions"], "instructions": "x"},
        {"inherit": ["title"]},
        {"agent": {"agent_id": other_id, "version": 9}},
        {"agent": {"agent_id": session["id"]}},
        {"agent": None, "inherit": ["model"]},
    ):
        assert error_of(await world.patch(f"/v1/sessions/{session['id']}", body)) == (400, "invalid_request"), body
    assert await read(world, session) == joined
    empty_id = await new_agent(world, "Empty")
    for reference in ({"agent_id": empty_id}, {"agent_id": other_id, "version": 9}, {"agent_id": session["id"]}):
        assert error_of(await world.post("/v1/sessions", {"agent": reference})) == (400, "invalid_request"), reference


async def test_fallback_models_follow_the_agent(world: World) -> None:
    version = {"model": "demo", "fallback_models": ["openai:gpt-5"], "sandbox": None}
    agent = (await world.post("/v1/agents", {"name": f"Falls back {uuid4()}", "version": version})).json()
    session = await created(world, agent={"agent_id": agent["id"]})
    assert (session["fallback_models"], session["overrides"]) == (["openai:gpt-5"], [])
    _, setup = await begun(world, session)
    assert setup.models == ["demo", "openai:gpt-5"]
    session = await changed(world, session, fallback_models=["demo", "openai:gpt-5-mini"])
    assert (session["fallback_models"], session["overrides"]) == (["demo", "openai:gpt-5-mini"], ["fallback_models"])
    assert (await changed(world, session, inherit=["fallback_models"]))["fallback_models"] == ["openai:gpt-5"]


async def test_servers_and_schemas_without_an_agent(world: World) -> None:
    answer = await world.post("/v1/mcp-servers", {"name": "tools", "url": "https://example.com/mcp"})
    server_id = answer.json()["id"]
    session = await created(world, mcp_servers=[server_id], output_schema=SCHEMA)
    assert (session["mcp_servers"], session["output_schema"], session["agent"]) == ([server_id], SCHEMA, None)
    _, setup = await begun(world, session)
    assert (setup.mcp_servers, setup.output_schema, setup.agent) == ([UUID(server_id)], SCHEMA, None)
    assert (await world.delete(f"/v1/mcp-servers/{server_id}")).status_code == 204
    # A deleted server may stay, and cannot be added.
    assert (await changed(world, session, mcp_servers=[server_id], title="x"))["mcp_servers"] == [server_id]
    assert (await changed(world, session, mcp_servers=[], output_schema=None))["output_schema"] is None
    for body in (
        {"mcp_servers": [server_id]},
        {"fallback_models": ["nobody:x"]},
        {"output_schema": {"type": "nonsense"}},
        {"inherit": ["model"]},
        {"mcp_servers": None},
    ):
        assert error_of(await world.patch(f"/v1/sessions/{session['id']}", body)) == (400, "invalid_request"), body
        if "inherit" not in body:
            assert error_of(await world.post("/v1/sessions", body)) == (400, "invalid_request"), body


async def test_a_run_keeps_its_version_in_later_attempts(world: World) -> None:
    agent_id = await new_agent(world, "Writer", FIRST)
    session = await created(world, agent={"agent_id": agent_id})
    run_id = (await world.submit(session["id"])).json()["run_id"]
    await begin_run(world, run_id)
    await push(world, agent_id, SECOND)
    # Its worker was lost.
    lease = await begin_run(world, run_id)
    assert (lease.attempt, lease.setup.agent, lease.setup.instructions) == (2, UsedAgent(UUID(agent_id), 1), "First.")
    assert (await stored(world, session))[1:3] == ("First.", {"add_note": "allow"})
    query = "SELECT data->'agent' FROM session_events WHERE run_id = %s AND type = 'run.started' ORDER BY id"
    assert [row[0] for row in await world.fetch(query, run_id)] == [{"agent_id": agent_id, "version": 1}] * 2
    assert (await world.get(f"/v1/runs/{run_id}")).json()["agent"] == {"agent_id": agent_id, "version": 1}


async def test_another_agent_does_not_touch_a_waiting_run(world: World) -> None:
    """Its tools, tool policy and limits belong together. Other rules could allow what a person is being asked about."""
    first = FIRST | {"tool_policy": {"add_note": "ask"}, "limits": {"run": {"max_tokens": 500}}}
    agent_id, other_id = await new_agent(world, "Writer", first), await new_agent(world, "Reader", SECOND)
    session = await created(world, agent={"agent_id": agent_id})
    run_id = (await world.submit(session["id"])).json()["run_id"]
    setup = (await begin_run(world, run_id)).setup
    await wait_for(world, run_id)
    await new_actions(world, session["id"], run_id, [approval()])
    after = await changed(world, session, agent={"agent_id": other_id})
    assert (after["instructions"], after["tool_policy"]) == ("Second.", {"add_note": "deny"})
    assert (await stored(world, session))[2:] == ({"add_note": "ask"}, 500)
    # Fields that are set on the session itself apply at once, as always.
    await changed(world, session, agent={"agent_id": other_id}, tool_policy={"add_note": "allow"})
    assert (await stored(world, session))[2:] == ({"add_note": "allow"}, 500)
    await changed(world, session, inherit=["tool_policy"])
    await world.execute("UPDATE runs SET state = 'queued', waiting_since = NULL WHERE id = %s", run_id)
    lease = await begin_run(world, run_id)
    assert (lease.setup, lease.setup.agent) == (setup, UsedAgent(UUID(agent_id), 1))
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    # The next run has the other agent.
    (_, setup) = await begun(world, session)
    assert (setup.agent, setup.instructions) == (UsedAgent(UUID(other_id), 1), "Second.")
    assert (await stored(world, session))[2:] == ({"add_note": "deny"}, 9)
    # Without an agent, the values are the session's own and apply at once.
    await push(world, other_id, FIRST)
    await changed(world, session, agent=None)
    assert (await stored(world, session))[2:] == ({"add_note": "allow"}, None)


async def test_a_session_of_an_archived_agent_is_forked(world: World) -> None:
    """A fork continues a session. The console makes one when a person edits a message."""
    agent_id = await new_agent(world, "Writer", FIRST)
    session = await created(world, agent={"agent_id": agent_id})
    await world.submit(session["id"], "Hello.")
    await change_agent(world, agent_id, archived=True)
    for body in ({}, {"before_event_id": (await log_of(world, session["id"]))[0]["id"]}):
        fork = await world.post(f"/v1/sessions/{session['id']}/fork", body)
        assert fork.status_code == 201, fork.text
        assert fork.json()["agent"]["agent_id"] == agent_id
        assert (await begun(world, fork.json()))[1].agent == UsedAgent(UUID(agent_id), 1)
    assert error_of(await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})) == (400, "invalid_request")


async def test_a_field_that_is_left_out_and_null_are_different_requests(world: World) -> None:
    agent_id = await new_agent(world, "Writer", FIRST)
    inherits, sets = {"agent": {"agent_id": agent_id}}, {"agent": {"agent_id": agent_id}, "model": None}
    assert (await world.post("/v1/sessions", inherits, headers={"Idempotency-Key": "k"})).json()["model"] == "demo"
    assert error_of(await world.post("/v1/sessions", sets, headers={"Idempotency-Key": "k"}))[0] == 409
