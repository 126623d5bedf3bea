"""Limits of cost and tokens with real workers: a run at a limit waits, continues when it is raised, or ends."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contract.provider_server import OPENAI, Reply, streams
from tests.fault.stand_in import StandIn, asking, call_then_answer
from tests.fault.waiting import new_session, open_actions, resolve
from tests.workers import check_log, ended, eventually, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, error_of, serving

# The price of an answer of the stand-in: eleven input tokens, four of them cached, and seven output tokens.
STEP_TOKENS = 18
STEP_COST = 0.0000925
MODEL = "openai-chat:gpt-4o"


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


async def submitted(world: World, session_id: str, text: str = "Hello.") -> str:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def run_of(world: World, run_id: str) -> dict[str, Any]:
    run: dict[str, Any] = (await world.get(f"/v1/runs/{run_id}")).json()
    return run


async def raise_cost_of_run(world: World, stand_in: StandIn) -> None:
    stand_in.replies["gpt-4o"] = call_then_answer()
    session_id = await new_session(world, model=MODEL, limits={"run": {"max_cost_usd": 0.00005}})
    run_id = await submitted(world, session_id)
    [action] = await open_actions(world, run_id)
    assert action["kind"] == "budget"
    assert action["reached"] == {"scope": "run", "limit": "max_cost_usd", "maximum": 0.00005, "used": STEP_COST}
    assert action["reason"] == "Reached the limit of $0.00005 for this run: $0.000092 used."
    used = {
        "input_tokens": 11,
        "cached_tokens": 4,
        "cache_write_tokens": 0,
        "output_tokens": 7,
        "cost_usd": STEP_COST,
    }
    assert (await run_of(world, run_id))["usage"] == used
    assert (await world.submit(session_id, "One more thing.")).json() == {"outcome": "steered", "run_id": run_id}
    too_low = await world.post(f"/v1/actions/{action['id']}/resolve", {"decision": "raise", "max_cost_usd": STEP_COST})
    assert error_of(too_low)[0] == 400
    await resolve(world, action, decision="raise", max_cost_usd=0.0001)
    assert (await ended(world, run_id))["state"] == "succeeded"
    assert stand_in.texts("gpt-4o")[-1] == ["Hello.", "One more thing."]
    twice = {name: pytest.approx(2 * value) for name, value in used.items()}
    assert (await run_of(world, run_id))["usage"] == twice
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert session["usage"] == twice
    assert session["limits"]["run"]["max_cost_usd"] == 0.00005, "only this run may use more"
    [item] = (await world.get("/v1/usage?group_by=model")).json()["items"]
    assert item == {"group": MODEL, "label": None, "runs": 1} | twice
    [item] = (await world.get("/v1/usage?group_by=api_key")).json()["items"]
    assert (item["label"], item["runs"]) == ("test", 1)
    assert (await world.get("/v1/workspace")).json()["used_today"] == twice
    check_log(await log_of(world, session_id))


async def stop_or_expire(world: World) -> None:
    session_id = await new_session(world, model="demo", limits={"session": {"max_tokens": 10}})
    run_id = await submitted(world, session_id)
    [action] = await open_actions(world, run_id)
    assert action["reached"]["scope"] == "session"
    assert (await run_of(world, run_id))["usage"]["cost_usd"] is None
    await resolve(world, action, decision="stop")
    assert (await ended(world, run_id))["failure"] == "Stopped at the limit of 10 tokens for this session."
    # The next run reaches the limit before its first step.
    run_id = await submitted(world, session_id)
    [action] = await open_actions(world, run_id)
    assert (await run_of(world, run_id))["steps"] == 0
    await world.execute("UPDATE actions SET expires_at = now() WHERE id = %s", action["id"])
    reason = "Stopped at the limit of 10 tokens for this session: nobody raised it in time."
    assert (await ended(world, run_id))["failure"] == reason
    # What was steered before the first step starts the next run.
    stopped_id = await submitted(world, session_id)
    [action] = await open_actions(world, stopped_id)
    assert (await world.submit(session_id, "Steered.")).json() == {"outcome": "steered", "run_id": stopped_id}
    await resolve(world, action, decision="stop")
    assert (await ended(world, stopped_id))["state"] == "failed"
    run_id = (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"][0]["id"]
    assert run_id != stopped_id
    [action] = await open_actions(world, run_id)
    await resolve(world, action, decision="raise", max_tokens=1_000_000)
    assert (await ended(world, run_id))["state"] == "succeeded"
    limits = (await world.get(f"/v1/sessions/{session_id}")).json()["limits"]
    assert limits["session"] == {"max_cost_usd": None, "max_tokens": 1_000_000}
    check_log(await log_of(world, session_id))


async def released(world: World, *run_ids: str) -> None:
    """The runs succeed although nobody answered their actions."""
    for run_id in run_ids:
        assert (await ended(world, run_id))["state"] == "succeeded"
        session_id = (await run_of(world, run_id))["session_id"]
        log = await log_of(world, session_id)
        check_log(log)
        closings = [entry["data"] for entry in log if entry["type"] == "action.resolved"]
        assert {(one["state"], one["resolution"]["decision"], one["resolved_by"]) for one in closings} == {
            ("resolved", "raise", None)
        }


async def raise_for_all(world: World) -> None:
    async def limit(day: dict[str, Any]) -> None:
        assert (await world.patch("/v1/workspace", {"limits": {"day": day}})).status_code == 200

    async def at_limit() -> tuple[str, dict[str, Any]]:
        run_id = await submitted(world, await new_session(world, model="demo"))
        [action] = await open_actions(world, run_id)
        return run_id, action

    await limit({"max_tokens": 1})
    run_ids = [(await at_limit())[0] for _ in range(3)]
    await limit({"max_tokens": 1_000_000})
    await released(world, *run_ids)
    # The day is over, and nothing was used on the next one.
    used = (await world.get("/v1/workspace")).json()["used_today"]
    await limit({"max_tokens": used["input_tokens"] + used["output_tokens"]})
    run_id, action = await at_limit()
    yesterday = "UPDATE runs SET waiting_since = waiting_since - interval '1 day' WHERE id = %s"
    await world.execute(yesterday, run_id)

    async def another() -> bool:
        [current] = await open_actions(world, run_id)
        return bool(current["id"] != action["id"])

    await eventually(another)
    await world.execute("UPDATE daily_usage SET day = day - 1 WHERE workspace_id = %s", world.workspace_id)
    await world.execute(yesterday, run_id)
    await released(world, run_id)
    await limit({"max_tokens": None})
    session_id = await new_session(world, model="demo", limits={"session": {"max_tokens": 1}})
    run_id = await submitted(world, session_id)
    await open_actions(world, run_id)
    assert (await world.patch(f"/v1/sessions/{session_id}", {"limits": {"session": {"max_tokens": None}}})).is_success
    await released(world, run_id)


@pytest.mark.long
async def test_a_run_waits_at_its_limit(world: World, server: Server) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        working(server.database_url, server.data_dir, **asking(door)),
    ):
        async with StandIn.running(door) as stand_in:
            await raise_cost_of_run(world, stand_in)
            await stop_or_expire(world)
            await raise_for_all(world)


def calls() -> Reply:
    # Slow enough that all workers are in the middle of a step when the limit is reached.
    return streams(OPENAI.calls("Again.", ("call_1", "current_time", "{}")), pause_seconds=0.01)


@pytest.mark.long
async def test_workers_overshoot_a_daily_limit_by_the_steps_in_progress(world: World, server: Server) -> None:
    """One slot for each worker: at most four steps are in progress. More runs wait, and each could do 100 steps."""
    workers, sessions, limit = 4, 6, 24 * STEP_TOKENS
    answer = await world.patch("/v1/workspace", {"limits": {"day": {"max_tokens": limit}}})
    assert answer.status_code == 200
    with ExitStack() as stack:
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings = asking(door) | {"WORKER_CONCURRENCY": 1, "RUN_MAX_STEPS": 200, "DATABASE_POOL_CONNECTIONS": 3}
        for _ in range(workers):
            stack.enter_context(working(server.database_url, server.data_dir, **settings))

        async def all_have_started() -> bool:
            return len(await world.fetch("SELECT FROM workers")) == workers

        await eventually(all_have_started)
        async with StandIn.running(door) as stand_in:
            run_ids = []
            for number in range(sessions):
                stand_in.replies[f"model-{number}"] = [calls() for _ in range(100)]
                session_id = await new_session(world, model=f"openai-chat:model-{number}")
                run_ids.append(await submitted(world, session_id))
            for run_id in run_ids:
                [action] = await open_actions(world, run_id)
                assert action["reached"]["scope"] == "day"
    used = (await world.get("/v1/workspace")).json()["used_today"]
    tokens = used["input_tokens"] + used["output_tokens"]
    assert limit <= tokens < limit + workers * STEP_TOKENS
    asked = [len(stand_in.asked[f"model-{number}"]) for number in range(sessions)]
    assert sum(asked) * STEP_TOKENS == tokens
    assert sum(count > 0 for count in asked) == workers, "each worker had a run of its own"
