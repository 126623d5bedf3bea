"""Inputs with the priority `batch`: what is stored and refused. How they are answered: tests/fault/test_batches.py."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.agent_requests import new_agent
from tests.workers import check_log, ended, log_of, working
from tests.world import World, error_of


async def send(world: World, session_id: str, *, key: str | None = None, **fields: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = {"type": "input", "text": "Sort them.", **fields}
    return await world.post(f"/v1/sessions/{session_id}/events", body, headers=headers)


async def priority_of(world: World, answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    run = (await world.get(f"/v1/runs/{answer.json()['run_id']}")).json()
    assert run["waits_for_batch_since"] is None
    priority: str = run["priority"]
    return priority


async def accepted(world: World, session_id: str) -> list[str | None]:
    events = (await world.get(f"/v1/sessions/{session_id}/events")).json()["items"]
    return [event["data"].get("priority") for event in events if event["type"] == "input.accepted"]


@pytest.mark.parametrize("delivery", ["steer", "queue", "interrupt"])
async def test_the_run_has_the_priority_of_its_first_input(world: World, delivery: str) -> None:
    for fields, expected in (({}, "normal"), ({"priority": "normal"}, "normal"), ({"priority": "batch"}, "batch")):
        session_id = await world.new_session()
        answer = await send(world, session_id, delivery=delivery, **fields)
        assert await priority_of(world, answer) == expected
        assert await accepted(world, session_id) == [None if expected == "normal" else "batch"]


@pytest.mark.parametrize(("first", "second"), [("normal", "batch"), ("batch", "normal")])
async def test_steering_does_not_change_it(world: World, first: str, second: str) -> None:
    session_id = await world.new_session()
    await send(world, session_id, priority=first)
    answer = await send(world, session_id, priority=second)
    assert answer.json()["outcome"] == "steered"
    assert await priority_of(world, answer) == first


async def test_a_retry_keeps_it(world: World) -> None:
    run_id = (await send(world, await world.new_session(), priority="batch")).json()["run_id"]
    await world.post(f"/v1/runs/{run_id}/cancel", {})
    assert (await world.post(f"/v1/runs/{run_id}/retry", {})).json()["priority"] == "batch"


@pytest.mark.parametrize("delivery", ["steer", "queue"])
async def test_a_model_without_batches_is_400(world: World, delivery: str) -> None:
    session = (await world.post("/v1/sessions", {"model": "openai-chat:m"})).json()
    answer = await send(world, session["id"], priority="batch", delivery=delivery)
    assert error_of(answer) == (400, "invalid_request")
    assert answer.json()["error"]["message"] == "priority: openai-chat:m cannot be asked by batches."
    assert await accepted(world, session["id"]) == []
    assert await priority_of(world, await send(world, session["id"], priority="normal")) == "normal"


async def test_the_model_of_the_agent_counts(world: World) -> None:
    agent_id = await new_agent(world, "Sorter", {"model": "openai-chat:m"})
    session = (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()
    assert session["effective_model"] == "openai-chat:m"
    assert error_of(await send(world, session["id"], priority="batch")) == (400, "invalid_request")


@pytest.mark.parametrize("delivery", ["steer", "queue"])
async def test_a_receipt_comes_before_the_check_of_the_model(world: World, delivery: str) -> None:
    session_id = await world.new_session()
    first = await send(world, session_id, key="k", priority="batch", delivery=delivery)
    assert (await world.patch(f"/v1/sessions/{session_id}", {"model": "openai-chat:m"})).status_code == 200
    again = await send(world, session_id, key="k", priority="batch", delivery=delivery)
    assert (again.status_code, again.content) == (200, first.content)
    assert error_of(await send(world, session_id, key="k", delivery=delivery)) == (409, "conflict")


@pytest.mark.parametrize("priority", ["urgent", 1, None, ""])
async def test_another_priority_is_400(world: World, priority: object) -> None:
    answer = await send(world, await world.new_session(), priority=priority)
    assert error_of(answer) == (400, "invalid_request")


async def test_the_demo_model_answers_by_batches(world: World, tmp_path: Path) -> None:
    session_id = await world.new_session()
    run_id = (await send(world, session_id, priority="batch")).json()["run_id"]
    quick = {"MODEL_BATCH_COLLECT_SECONDS": 0.1, "MODEL_BATCH_POLL_SECONDS": 0.1}
    with working(world.database_url, tmp_path, **quick):
        run = await ended(world, run_id)
    assert (run["state"], run["steps"], run["waits_for_batch_since"]) == ("succeeded", 2, None)
    entries = await log_of(world, session_id)
    reasons = [entry["data"]["reason"] for entry in entries if entry["type"] == "run.requeued"]
    assert reasons == ["Waiting for a batch of demo."] * 2
    check_log(entries)
