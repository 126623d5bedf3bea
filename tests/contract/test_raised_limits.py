"""Limits that people raise or stop at, where they meet steered inputs, changes of the session and agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quarterdeck.core.settings import ActionSettings, DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.runs import lifecycle
from quarterdeck.runs.action_model import ActionState, LimitScope
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.worker.run_driver import budget_action, stop_reason
from tests.contract.agent_requests import begin_run, change_agent, new_agent, push
from tests.waiting_runs import budget, waiting_run
from tests.workers import check_log, log_of
from tests.world import World, app_url

_IN_FORCE = "SELECT scope, max_tokens FROM limits_of_run(%s) ORDER BY scope"


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[Database]:
    database = Database(app_url(world.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    yield database
    await database.close()


async def at_limit(world: World, run_id: str) -> tuple[Lease, str | None]:
    """An attempt that finds its limit reached, as the worker ends it. Returns the action that the run waits for."""
    lease = await begin_run(world, run_id)
    assert lease.reached is not None
    reached, stopped = lease.reached.reached, lease.reached.stopped
    async with opened(world) as database:
        if stopped is None:
            await lifecycle.wait(database, lease, [budget_action(reached)], ActionSettings())
        else:
            await lifecycle.fail(database, lease, stop_reason(reached, stopped))
    actions = (await world.get(f"/v1/actions?session_id={lease.session_id}&state=open")).json()["items"]
    return lease, actions[0]["id"] if actions else None


async def resolve(world: World, action_id: str | None, **answer: Any) -> None:
    response = await world.post(f"/v1/actions/{action_id}/resolve", answer)
    assert response.status_code == 200, response.text


async def submit(world: World, session_id: str, text: str) -> tuple[str, str]:
    body = (await world.submit(session_id, text)).json()
    return body["outcome"], body["run_id"]


async def consumed(world: World, session_id: str) -> dict[str, list[str]]:
    """The texts that each run has consumed."""
    log = await log_of(world, session_id)
    texts = {one["data"]["input_id"]: one["data"]["text"] for one in log if one["type"] == "input.accepted"}
    found: dict[str, list[str]] = {}
    for one in log:
        if one["type"] == "input.consumed":
            found.setdefault(one["run_id"], []).append(texts[one["data"]["input_id"]])
    return found


async def used_up(world: World) -> str:
    """A session that has used more tokens than it may."""
    session_id: str = (await world.post("/v1/sessions", {"limits": {"session": {"max_tokens": 100}}})).json()["id"]
    _, run_id = await submit(world, session_id, "Before.")
    await begin_run(world, run_id)
    await world.execute("UPDATE runs SET input_tokens = 120 WHERE id = %s", run_id)
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    return session_id


@pytest.mark.parametrize("expires", [False, True])
async def test_steered_inputs_start_the_next_run_after_a_stop(world: World, expires: bool) -> None:
    session_id = await used_up(world)
    _, run_id = await submit(world, session_id, "Task.")
    assert await submit(world, session_id, "Steered before it began.") == ("steered", run_id)
    _, action_id = await at_limit(world, run_id)
    assert await submit(world, session_id, "Steered while it waited.") == ("steered", run_id)
    if expires:
        query = "UPDATE actions SET state = 'expired', resolved_at = now() WHERE id = %s"
        await world.execute(query, action_id)
        await world.execute("SELECT continue_run(%s)", run_id)
    else:
        await resolve(world, action_id, decision="stop")
    lease, action_id = await at_limit(world, run_id)
    assert lease.reached is not None
    assert (lease.reached.stopped, action_id) == (ActionState.EXPIRED if expires else ActionState.RESOLVED, None)
    failed = [one for one in await log_of(world, session_id) if one["type"] == "run.failed"][-1]["data"]
    next_run_id = failed["next_run_id"]
    assert (await consumed(world, session_id))[run_id] == ["Task."]
    # It asks once for all inputs that started it.
    _, action_id = await at_limit(world, next_run_id)
    steered = ["Steered before it began.", "Steered while it waited."]
    assert (await consumed(world, session_id))[next_run_id] == steered
    await resolve(world, action_id, decision="stop")
    await at_limit(world, next_run_id)
    runs = (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"]
    assert [(one["id"], one["state"]) for one in runs[:2]] == [(next_run_id, "failed"), (run_id, "failed")]
    check_log(await log_of(world, session_id))


async def test_steered_inputs_are_consumed_after_a_raise(world: World) -> None:
    session_id = await used_up(world)
    _, run_id = await submit(world, session_id, "Task.")
    await submit(world, session_id, "Steered.")
    _, action_id = await at_limit(world, run_id)
    await resolve(world, action_id, decision="raise", max_tokens=1000)
    assert (await begin_run(world, run_id)).reached is None
    assert (await consumed(world, session_id))[run_id] == ["Task.", "Steered."]


async def limit_of_run(world: World, run_id: str) -> int | None:
    return dict(await world.fetch(_IN_FORCE, run_id)).get("run")


@pytest.mark.parametrize("changed", [1000, 150, None])
async def test_a_change_of_the_limit_reaches_a_run_whose_limit_was_raised(world: World, changed: int | None) -> None:
    body = {"limits": {"run": {"max_tokens": 100, "max_cost_usd": 5}}}
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    _, run_id, (action_id,) = await waiting_run(world, budget(LimitScope.RUN), session_id=session_id)
    await world.execute("UPDATE runs SET input_tokens = 120 WHERE id = %s", run_id)
    await resolve(world, action_id, decision="raise", max_tokens=200)
    path = f"/v1/sessions/{session_id}"
    # Changes of other limits leave it alone.
    for other in ({"run": {"max_cost_usd": 6}}, {"session": {"max_tokens": 900_000}}):
        assert (await world.patch(path, {"limits": other})).status_code == 200
        assert await limit_of_run(world, run_id) == 200
    assert (await world.patch(path, {"limits": {"run": {"max_tokens": changed}}})).status_code == 200
    assert await limit_of_run(world, run_id) == changed
    lease = await begin_run(world, run_id)
    assert lease.reached is None


@pytest.mark.parametrize(("second", "in_force"), [(1000, 1000), (150, 200), (None, None)])
async def test_a_session_gets_limits_of_its_own_after_a_raise(
    world: World, second: int | None, in_force: int | None
) -> None:
    """It has them from the version that its agent has now. The run began with another one."""
    agent_id = await new_agent(world, "Writer", {"limits": {"run": {"max_tokens": 100}}})
    session_id = (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()["id"]
    _, run_id, (action_id,) = await waiting_run(world, budget(LimitScope.RUN), session_id=session_id)
    await world.execute("UPDATE runs SET input_tokens = 120 WHERE id = %s", run_id)
    await push(world, agent_id, {"limits": {"run": {"max_tokens": second}}})
    await resolve(world, action_id, decision="raise", max_tokens=200)
    assert await limit_of_run(world, run_id) == 200
    changed = await world.patch(f"/v1/sessions/{session_id}", {"limits": {"session": {"max_tokens": 900_000}}})
    assert changed.json()["limits"]["run"]["max_tokens"] == second
    assert await limit_of_run(world, run_id) == in_force


FIRST = {"limits": {"run": {"max_tokens": 5_000}, "session": {"max_tokens": 100}}}


async def raise_under_agent(world: World, second: dict[str, Any], maximum: int) -> tuple[str, dict[str, Any], str]:
    """A run waits under the first version at the limit of the session. Then the second version is pushed, and the limit
    is raised. The agent, the session and the run."""
    agent_id = await new_agent(world, "Writer", FIRST)
    session_id = (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()["id"]
    _, run_id = await submit(world, session_id, "Task.")
    await begin_run(world, run_id)
    await world.execute("UPDATE runs SET state = 'queued', input_tokens = 120 WHERE id = %s", run_id)
    _, action_id = await at_limit(world, run_id)
    await push(world, agent_id, {"limits": second})
    await resolve(world, action_id, decision="raise", max_tokens=maximum)
    return agent_id, (await world.get(f"/v1/sessions/{session_id}")).json(), run_id


def tokens(session: dict[str, Any]) -> tuple[int | None, int | None]:
    return session["limits"]["run"]["max_tokens"], session["limits"]["session"]["max_tokens"]


async def test_a_raise_below_what_the_agent_allows_now_changes_nothing(world: World) -> None:
    higher = {"run": {"max_tokens": 900_000}, "session": {"max_tokens": 500_000}}
    agent_id, session, run_id = await raise_under_agent(world, higher, 100_000)
    assert tokens(session) == (900_000, 500_000)
    assert (session["overrides"], session["revision"]) == ([], 1)
    assert (await begin_run(world, run_id)).reached is None
    await change_agent(world, agent_id, default_version=1)
    assert tokens((await world.get(f"/v1/sessions/{session['id']}")).json()) == (5_000, 100), "it follows its agent"


async def test_a_raise_changes_one_limit_of_what_the_session_shows(world: World) -> None:
    lower = {"run": {"max_tokens": 50}, "session": {"max_tokens": 60}}
    _, session, run_id = await raise_under_agent(world, lower, 100_000)
    assert tokens(session) == (50, 100_000)
    assert (session["overrides"], session["revision"]) == (["limits"], 2)
    assert dict(await world.fetch(_IN_FORCE, run_id)) == {"run": 5_000, "session": 100_000}, "the run keeps its own"
    assert (await begin_run(world, run_id)).reached is None


async def test_a_raise_brings_no_limit_to_a_run_that_had_none(world: World) -> None:
    _, session, run_id = await raise_under_agent(world, {"run": {"max_cost_usd": 1, "max_tokens": 1}}, 100_000)
    assert tokens(session) == (1, None)
    assert session["overrides"] == [], "the session has no limit any more"
    await world.execute("UPDATE runs SET input_tokens = 4000, cost_usd = 900 WHERE id = %s", run_id)
    assert (await begin_run(world, run_id)).reached is None
