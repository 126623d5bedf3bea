"""Runs as their users see them: driven by a real worker with the demo model."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from quarterdeck.core.actors import Permission
from tests.fault.stand_in import Brake
from tests.workers import Worker, at_rest, check_log, ended, log_of, working
from tests.world import Server, World, bundle, error_of


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[Worker]:
    with working(server.database_url, server.data_dir) as worker:
        yield worker


async def submit_and_begin(world: World, brake: Brake, text: str) -> str:
    """The run's id. Its worker has begun it and asks the model: what comes in now is for the next step."""
    submitting = asyncio.create_task(world.submit(brake.session_id, text))
    await brake.let_pass()
    await brake.let_pass()
    run_id: str = (await submitting).json()["run_id"]
    return run_id


async def test_input_is_processed(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "Plan the release.")).json()["run_id"]
    run = await ended(world, run_id)
    assert (run["state"], run["failure"]) == ("succeeded", None)
    assert (run["inputs_accepted"], run["inputs_consumed"]) == (1, 1)
    assert run["attempts"] == 1
    assert run["steps"] >= 2
    assert run["started_at"] <= run["finished_at"]
    entries = await log_of(world, session_id)
    check_log(entries)
    types = [entry["type"] for entry in entries]
    assert types[:3] == ["input.accepted", "run.started", "input.consumed"]
    assert types[-1] == "run.succeeded"
    assert "tool.call" in types
    answer = [entry["data"] for entry in entries if entry["type"] == "message"][-1]
    assert answer["role"] == "assistant"
    assert "demo" in answer["text"].lower()
    assert "Plan the release." in answer["text"]


async def test_an_input_during_a_run_steers_it(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    async with Brake(world, session_id) as brake:
        run_id = await submit_and_begin(world, brake, "First.")
        await brake.waiting()
        steering = asyncio.create_task(world.submit(session_id, "And keep it short."))
        await brake.waiting(2)
    assert (await steering).json() == {"outcome": "steered", "run_id": run_id}
    run = await ended(world, run_id)
    assert (run["state"], run["inputs_accepted"], run["inputs_consumed"]) == ("succeeded", 2, 2)
    entries = await log_of(world, session_id)
    check_log(entries)
    assert "And keep it short." in [entry["data"] for entry in entries if entry["type"] == "message"][-1]["text"]
    steps = [entry["data"]["step"] for entry in entries if entry["type"] == "input.consumed"]
    assert steps[0] == 1
    assert steps[1] > 1, "taken up at a later step"


async def test_next_input_continues_the_conversation(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    first = (await world.submit(session_id, "One.")).json()["run_id"]
    await ended(world, first)
    second = (await world.submit(session_id, "Two.")).json()
    assert second["outcome"] == "new_run"
    await ended(world, second["run_id"])
    listed = (await world.get(f"/v1/sessions/{session_id}/runs")).json()
    assert [run["id"] for run in listed["items"]] == [second["run_id"], first]
    assert listed["next_cursor"] is None
    check_log(await log_of(world, session_id))


async def test_a_skill_is_read_by_the_agent(world: World, worker: Worker) -> None:
    skill_id = await world.new_skill()
    await world.push(skill_id, bundle("greeting", **{"SKILL.md": GREETING.format("Say ahoy.")}))
    await world.push(skill_id, bundle("greeting", **{"SKILL.md": GREETING.format("Say hello.")}))
    for skill, said in (({"skill_id": skill_id}, "Say hello."), ({"skill_id": skill_id, "version": 1}, "Say ahoy.")):
        session = (await world.post("/v1/sessions", {"skills": [skill]})).json()
        run_id = (await world.submit(session["id"], "Greet me.")).json()["run_id"]
        assert (await ended(world, run_id))["state"] == "succeeded"
        results = [
            entry["data"]["text"] for entry in await log_of(world, session["id"]) if entry["type"] == "tool.result"
        ]
        assert any(said in result for result in results)


GREETING = "---\nname: greeting\ndescription: Says hello.\n---\n{}\n"


async def test_failed_run_has_a_reason_and_loses_no_input(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    async with Brake(world, session_id) as brake:
        submitting = asyncio.create_task(world.submit(session_id, "demo: fail"))
        await brake.let_pass()
        await brake.waiting()
        # Behind the begin, which takes the inputs, and before the failure.
        steering = asyncio.create_task(world.submit(session_id, "Still to be done."))
        await brake.let_pass(2)
    run_id = (await submitting).json()["run_id"]
    assert (await steering).json() == {"outcome": "steered", "run_id": run_id}
    run = await ended(world, run_id)
    assert run["state"] == "failed"
    assert run["failure"]
    entries = await log_of(world, session_id)
    (failed,) = [entry for entry in entries if entry["type"] == "run.failed"]
    assert failed["data"]["reason"] == run["failure"]
    await at_rest(world, session_id)
    check_log(await log_of(world, session_id))


async def test_a_missing_key_fails_at_once_and_names_the_setting(world: World, worker: Worker) -> None:
    session = (await world.post("/v1/sessions", {})).json()
    # Its provider was removed.
    await world.execute("UPDATE sessions SET model = 'anthropic:some-model' WHERE id = %s", session["id"])
    run = await ended(world, (await world.submit(session["id"])).json()["run_id"])
    assert run["state"] == "failed"
    assert "QUARTERDECK_MODEL_ANTHROPIC_API_KEY" in run["failure"]
    assert run["inputs_consumed"] == 1


async def test_cancel_lists_unconsumed_inputs(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    async with Brake(world, session_id) as brake:
        run_id = await submit_and_begin(world, brake, "demo: slow 99")
    await world.submit(session_id, "Too late.")
    answer = await world.post(f"/v1/runs/{run_id}/cancel", None)
    assert answer.status_code == 200
    assert answer.json()["state"] == "cancelled"
    assert len(answer.json()["discarded_input_ids"]) == 1
    again = await world.post(f"/v1/runs/{run_id}/cancel", None)
    assert (again.status_code, again.json()["state"], again.json()["discarded_input_ids"]) == (200, "cancelled", [])
    next_run = (await world.submit(session_id, "Go on.")).json()
    assert next_run["outcome"] == "new_run"
    assert (await ended(world, next_run["run_id"]))["state"] == "succeeded", "the worker let go of the session"
    entries = await log_of(world, session_id)
    check_log(entries)
    cancelled = [entry["id"] for entry in entries if entry["type"] == "run.cancelled"]
    assert len(cancelled) == 1
    late = [entry for entry in entries if entry["run_id"] == run_id and entry["id"] > cancelled[0]]
    assert late == [], "nothing is written for a cancelled run"


async def test_tokens_read_and_cancel_in_their_own_session(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    token, other = await world.new_token(session_id), await world.new_token(await world.new_session())
    run_id = (await world.submit(session_id, "demo: slow 99", key=token)).json()["run_id"]
    assert (await world.get(f"/v1/runs/{run_id}", key=token)).status_code == 200
    assert (await world.get(f"/v1/sessions/{session_id}/runs", key=token)).status_code == 200
    foreign, absent = (
        await world.get(f"/v1/runs/{run_id}", key=other),
        await world.get(f"/v1/runs/{uuid4()}", key=other),
    )
    assert error_of(foreign) == (404, "not_found")
    assert foreign.content == absent.content
    assert error_of(await world.post(f"/v1/runs/{run_id}/cancel", None, key=other)) == (404, "not_found")
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None, key=token)).json()["state"] == "cancelled"


async def test_permissions_on_runs(world: World, worker: Worker) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id)).json()["run_id"]
    reader, writer = await world.new_key(Permission.WORKSPACE_READ), await world.new_key(Permission.SESSION_MANAGE)
    assert (await world.get(f"/v1/runs/{run_id}", key=reader)).status_code == 200
    assert error_of(await world.get(f"/v1/runs/{run_id}", key=writer)) == (403, "forbidden")
    assert error_of(await world.post(f"/v1/runs/{run_id}/cancel", None, key=reader)) == (403, "forbidden")


@pytest.mark.parametrize(
    "skills",
    [
        [{"skill_id": str(uuid4())}],
        [{"skill_id": "x"}],
        [{}],
        [{"skill_id": None}],
    ],
    ids=["unknown", "no uuid", "missing", "null"],
)
async def test_a_session_with_skills_that_do_not_exist_is_400(world: World, skills: object) -> None:
    assert error_of(await world.post("/v1/sessions", {"skills": skills})) == (400, "invalid_request")


async def test_session_shows_its_settings(world: World, server: Server) -> None:
    skill_id = await world.new_skill()
    skills = {"skills": [{"skill_id": skill_id}]}
    assert error_of(await world.post("/v1/sessions", skills)) == (400, "invalid_request"), "it has no version"
    await world.push(skill_id, bundle())
    asked = {
        "title": "t",
        "model": "demo",
        "instructions": "Be kind.",
        "skills": [{"skill_id": skill_id, "version": None}],
    }
    answer = await world.post("/v1/sessions", asked)
    assert answer.status_code == 201
    assert asked.items() <= answer.json().items()
    twice = [{"skill_id": skill_id}, {"skill_id": skill_id}]
    assert error_of(await world.post("/v1/sessions", {"skills": twice})) == (400, "invalid_request")
    absent = [{"skill_id": skill_id, "version": 7}]
    assert error_of(await world.post("/v1/sessions", {"skills": absent})) == (400, "invalid_request")
    other = await World.create(server.database_url, world.http)
    foreign = [{"skill_id": await other.new_skill()}]
    assert error_of(await world.post("/v1/sessions", {"skills": foreign})) == (400, "invalid_request")
