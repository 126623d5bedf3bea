"""Tool calls of a real worker: asked about, denied, carried out by the caller."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fault.waiting import new_session, notes_of, open_actions, resolve, results_of, start, succeeded
from tests.workers import Worker, ended, eventually, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

LOOKUP = {"name": "crm_lookup", "description": "Find a customer.", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[Worker]:
    """For tests that end no worker."""
    with working(server.database_url, server.data_dir) as worker:
        yield worker


CHANGED = 'Called with changed arguments: {"text":"y"}\n\n'


@pytest.mark.parametrize(
    ("answer", "notes", "result"),
    [
        ({"decision": "allow"}, ["x"], "The note is stored."),
        ({"decision": "deny", "message": "Not now."}, [], "Denied: Not now."),
        ({"decision": "allow", "arguments": {"text": "y"}}, ["y"], f"{CHANGED}The note is stored."),
        (None, [], "Denied: nobody approved this call in time."),
    ],
    ids=["allow", "deny", "edit", "expired"],
)
@pytest.mark.usefixtures("worker")
async def test_an_approval(world: World, answer: dict[str, Any] | None, notes: list[str], result: str) -> None:
    session_id = await world.new_session()
    run_id = await start(world, session_id, "note: x")
    [action] = await open_actions(world, run_id)
    assert (action["kind"], action["tool"], action["arguments"]) == ("approval", "add_note", {"text": "x"})
    assert await jobs_of(world, run_id) == []
    assert await notes_of(world, session_id) == []
    if answer is None:
        await world.execute("UPDATE actions SET expires_at = now() WHERE id = %s", action["id"])
    else:
        await resolve(world, action, **answer)
    await succeeded(world, run_id)
    assert await notes_of(world, session_id) == notes
    assert await results_of(world, session_id) == {"add_note": result}


async def jobs_of(world: World, run_id: str) -> list[tuple[Any, ...]]:
    """Those that are left when the worker has had a moment to finish."""

    async def look() -> bool:
        return not await world.fetch("SELECT FROM run_jobs WHERE run_id = %s", run_id)

    await eventually(look)
    return []


@pytest.mark.usefixtures("worker")
async def test_several_calls_wait_together(world: World) -> None:
    """Those that are allowed are carried out at once. An input that comes meanwhile is consumed after the results. The
    time that the run waits does not count."""
    session_id = await new_session(world, client_tools=[LOOKUP])
    calls = ["current_time", 'add_note {"text": "x"}', 'crm_lookup {"id": 7}', "no_such_tool", "add_note [1]"]
    run_id = await start(world, session_id, "\n".join(f"call: {call}" for call in calls))
    note, lookup = await open_actions(world, run_id, 2)
    assert (lookup["kind"], lookup["tool"], lookup["arguments"]) == ("tool_result", "crm_lookup", {"id": 7})
    results = [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]
    assert [data["name"] for data in results] == ["current_time", "no_such_tool", "add_note"]
    assert [data["text"].startswith("Error: ") for data in results] == [False, True, True]
    assert [data.get("is_error", False) for data in results] == [False, True, True]

    steered = (await world.submit(session_id, "And hurry.")).json()
    assert steered == {"outcome": "steered", "run_id": run_id}
    # Two hours: longer than a run may take.
    query = """
        UPDATE runs SET started_at = started_at - interval '2 hours', waiting_since = waiting_since - interval '2 hours'
        WHERE id = %s
    """
    await world.execute(query, run_id)
    await resolve(world, note, decision="allow", remember="session")
    assert (await world.get(f"/v1/runs/{run_id}")).json()["waiting_for"] == [lookup["id"]]
    await resolve(world, lookup, result={"name": "Ada"})
    await succeeded(world, run_id)

    entries = await log_of(world, session_id)
    order = [entry["type"] for entry in entries]
    consumed = max(at for at, one in enumerate(order) if one == "input.consumed")
    assert consumed > max(at for at, one in enumerate(order) if one == "tool.result")
    assert order[consumed:].count("message") == 1, "the input was consumed before the next request"
    assert await notes_of(world, session_id) == ["x"]
    assert (await results_of(world, session_id))["crm_lookup"] == '{"name":"Ada"}'

    # Allowed for the rest of the session, unless the policy denies it.
    await succeeded(world, await start(world, session_id, "note: y"))
    assert await notes_of(world, session_id) == ["x", "y"]
    await world.patch(f"/v1/sessions/{session_id}", {"tool_policy": {"add_*": "deny"}})
    await succeeded(world, await start(world, session_id, "note: z"))
    assert await notes_of(world, session_id) == ["x", "y"]
    denied = (await results_of(world, session_id))["add_note"]
    assert denied == "Denied: the policy of this session does not allow this tool."


@pytest.mark.parametrize("rule", ["deny", "ask"])
@pytest.mark.usefixtures("worker")
async def test_a_result_counts_that_arrives_after_the_policy_has_changed(world: World, rule: str) -> None:
    session_id = await new_session(world, client_tools=[LOOKUP])
    run_id = await start(world, session_id, 'call: crm_lookup {"id": 7}')
    [action] = await open_actions(world, run_id)
    policy = {"tool_policy": {"crm_lookup": rule}}
    assert (await world.patch(f"/v1/sessions/{session_id}", policy)).status_code == 200
    await resolve(world, action, result="Ada")
    await succeeded(world, run_id)
    assert await results_of(world, session_id) == {"crm_lookup": "Ada"}


@pytest.mark.long
@pytest.mark.usefixtures("worker")
async def test_a_waiting_run_is_the_active_run(world: World) -> None:
    """It can be cancelled, interrupted, queued behind, forked and deleted, and each closes its actions."""
    session_id = await world.new_session()

    async def waiting(text: str = "note: x") -> tuple[str, dict[str, Any]]:
        run_id = await start(world, session_id, text)
        [action] = await open_actions(world, run_id)
        return run_id, action

    async def closed(action: dict[str, Any]) -> None:
        assert (await world.get(f"/v1/actions/{action['id']}")).json()["state"] == "cancelled"
        late = await world.post(f"/v1/actions/{action['id']}/resolve", {"decision": "allow"})
        assert late.status_code == 409

    run_id, action = await waiting()
    assert (await world.submit(session_id, "Also.")).json()["outcome"] == "steered"
    assert (await world.post(f"/v1/runs/{run_id}/retry", None)).status_code == 409
    assert (await world.post(f"/v1/sessions/{session_id}/fork", {})).status_code == 201
    cancelled = (await world.post(f"/v1/runs/{run_id}/cancel", None)).json()
    assert (cancelled["state"], len(cancelled["discarded_input_ids"])) == ("cancelled", 1)
    await closed(action)

    retried = (await world.post(f"/v1/runs/{run_id}/retry", None)).json()["id"]
    [action] = await open_actions(world, retried)
    queued = (await world.submit(session_id, "note: next", delivery="queue")).json()["run_id"]
    assert (await world.get(f"/v1/runs/{queued}")).json()["state"] == "pending"
    await resolve(world, action, decision="deny")
    assert (await ended(world, retried))["state"] == "succeeded"
    [action] = await open_actions(world, queued)

    interrupting = (await world.submit(session_id, "Stop that.", delivery="interrupt")).json()["run_id"]
    await closed(action)
    await succeeded(world, interrupting)
    answer = next(
        entry["data"]["text"] for entry in reversed(await log_of(world, session_id)) if "text" in entry["data"]
    )
    assert "Stop that." in answer
    assert await notes_of(world, session_id) == []

    run_id, action = await waiting()
    webhook_id = await world.new_webhook("https://example.com/hook", "action.resolved")
    assert (await world.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert (await world.get(f"/v1/actions/{action['id']}")).status_code == 404
    query = "SELECT event FROM webhook_deliveries WHERE webhook_id = %s"
    assert await world.fetch(query, webhook_id) == [("action.resolved",)]
