"""Answers, cancellation, expiry and inputs at the same time: the first to get the session's lock decides, everything
that belongs to a decision is stored with it, and the run continues once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.runs.action_records import expire_actions
from tests.waiting_runs import approval, jobs_of, tool_result, waiting_run
from tests.workers import log_of
from tests.world import World, app_url

ROUNDS = 6
ALLOW, DENY = {"decision": "allow"}, {"decision": "deny"}


@pytest.fixture
async def database(world: World) -> AsyncIterator[Database]:
    """As a worker has it."""
    database = Database(app_url(world.database_url), DatabaseSettings())
    await database.open()
    # What other tests of this process left behind must not be counted.
    while await expire_actions(database):
        pass
    yield database
    await database.close()


async def resolve(world: World, action_id: str, answer: dict[str, Any]) -> httpx.Response:
    return await world.post(f"/v1/actions/{action_id}/resolve", answer)


async def overdue(world: World, *action_ids: str) -> None:
    await world.execute("UPDATE actions SET expires_at = now() WHERE id::text = ANY (%s)", list(action_ids))


async def closings(world: World, session_id: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "action.resolved"]


async def stored(world: World, session_id: str, run_id: str, action_id: str) -> tuple[str, str]:
    """The states of run and action. Each action was closed once, with one event, and its run has one job or none."""
    action = (await world.get(f"/v1/actions/{action_id}")).json()
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    (closing,) = await closings(world, session_id)
    assert (closing["action_id"], closing["state"]) == (action_id, action["state"])
    assert (closing["resolution"], closing["resolved_by"]) == (action["resolution"], action["resolved_by"])
    assert run["waiting_for"] == []
    assert await jobs_of(world, run_id) == (1 if run["state"] == "queued" else 0)
    return run["state"], action["state"]


async def test_fifty_parallel_answers(world: World) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world)
    answers = [ALLOW, DENY] * 25
    responses = await asyncio.gather(*(resolve(world, action_id, answer) for answer in answers))
    winner = (await world.get(f"/v1/actions/{action_id}")).json()["resolution"]
    for answer, response in zip(answers, responses, strict=True):
        assert response.status_code == (200 if answer == winner else 409), response.text
    assert len({response.content for response in responses if response.status_code == 200}) == 1
    assert await stored(world, session_id, run_id, action_id) == ("queued", "resolved")
    audited = (await world.get(f"/v1/audit-events?object_id={action_id}")).json()["items"]
    assert len(audited) == 1


async def test_parallel_answers_to_all_actions_of_a_run(world: World) -> None:
    calls = [tool_result(call_id=f"call_{number}") for number in range(10)]
    session_id, run_id, action_ids = await waiting_run(world, *calls)
    responses = await asyncio.gather(*(resolve(world, action_id, {"result": action_id}) for action_id in action_ids))
    assert {response.status_code for response in responses} == {200}
    assert sorted(closing["action_id"] for closing in await closings(world, session_id)) == action_ids
    assert ((await world.get(f"/v1/runs/{run_id}")).json()["state"], await jobs_of(world, run_id)) == ("queued", 1)


async def test_answer_and_cancel(world: World) -> None:
    for number in range(ROUNDS):
        session_id, run_id, (action_id,) = await waiting_run(world)
        requests = [resolve(world, action_id, ALLOW), world.post(f"/v1/runs/{run_id}/cancel", None)]
        answers = await asyncio.gather(*(requests if number % 2 else requests[::-1]))
        resolved, cancelled = answers if number % 2 else answers[::-1]
        assert cancelled.status_code == 200
        state = "resolved" if resolved.status_code == 200 else "cancelled"
        assert await stored(world, session_id, run_id, action_id) == ("cancelled", state)
        assert resolved.status_code in (200, 409), resolved.text
        # What was answered after the end was refused, and what was answered before it is in the log before it.
        types = [entry["type"] for entry in await log_of(world, session_id)]
        assert types.index("action.resolved") < types.index("run.cancelled")


@pytest.mark.long
async def test_answer_and_expiry(world: World, database: Database) -> None:
    for number in range(ROUNDS):
        session_id, run_id, (action_id,) = await waiting_run(world)
        await overdue(world, action_id)
        answering = asyncio.create_task(resolve(world, action_id, ALLOW))
        # Half of the time the answer has a start.
        await asyncio.sleep(0.01 * (number % 2))
        counts = await asyncio.gather(*(expire_actions(database) for _ in range(3)))
        resolved = await answering
        assert sum(counts) == (0 if resolved.status_code == 200 else 1)
        assert resolved.status_code in (200, 409), resolved.text
        state = "resolved" if resolved.status_code == 200 else "expired"
        assert await stored(world, session_id, run_id, action_id) == ("queued", state)


@pytest.mark.long
async def test_answer_and_input(world: World) -> None:
    for _ in range(ROUNDS):
        session_id, run_id, (action_id,) = await waiting_run(world)
        resolved, steered = await asyncio.gather(resolve(world, action_id, ALLOW), world.submit(session_id, "and"))
        assert resolved.status_code == 200
        assert steered.json() == {"outcome": "steered", "run_id": run_id}
        assert await stored(world, session_id, run_id, action_id) == ("queued", "resolved")
        assert (await world.get(f"/v1/runs/{run_id}")).json()["inputs_accepted"] == 2


async def test_answer_and_deletion_of_the_session(world: World) -> None:
    for _ in range(ROUNDS):
        session_id, _, (action_id,) = await waiting_run(world)
        resolved, deleted = await asyncio.gather(
            resolve(world, action_id, ALLOW), world.delete(f"/v1/sessions/{session_id}")
        )
        assert (deleted.status_code, resolved.status_code in (200, 404)) == (204, True), resolved.text
        assert (await world.get(f"/v1/actions/{action_id}")).status_code == 404


@pytest.mark.long
async def test_several_workers_expire_each_action_once(world: World, database: Database) -> None:
    runs = [await waiting_run(world, approval(), tool_result()) for _ in range(7)]
    await overdue(world, *(action_id for _, _, action_ids in runs for action_id in action_ids))
    counts = await asyncio.gather(*(expire_actions(database, batch=3) for _ in range(4)))
    # A worker skips sessions that another one has locked, and finds them in its next round.
    counts.append(await expire_actions(database, batch=3))
    assert sum(counts) == 14
    for session_id, run_id, action_ids in runs:
        assert [(one["action_id"], one["state"]) for one in await closings(world, session_id)] == [
            (action_id, "expired") for action_id in action_ids
        ]
        assert ((await world.get(f"/v1/runs/{run_id}")).json()["state"], await jobs_of(world, run_id)) == ("queued", 1)


async def test_expiry_skips_a_locked_session(world: World, database: Database) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world)
    await overdue(world, action_id)
    async with await world.connect() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
        assert await expire_actions(database) == 0
    assert await expire_actions(database) == 1
    assert await stored(world, session_id, run_id, action_id) == ("queued", "expired")


async def test_expiry_skips_a_deleted_session(world: World, database: Database) -> None:
    session_id, _, (action_id,) = await waiting_run(world)
    await overdue(world, action_id)
    await world.execute("DELETE FROM sessions WHERE id = %s", session_id)
    assert await expire_actions(database) == 0
    assert (await world.get("/v1/actions")).json()["items"] == []
