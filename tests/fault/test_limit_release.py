"""Runs that wait at a limit continue when it is raised, removed or of an earlier day, and only then."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.runs.action_model import LimitScope
from quarterdeck.runs.action_records import release_actions
from tests.waiting_runs import approval, budget, jobs_of, waiting_run
from tests.workers import log_of
from tests.world import World, app_url, error_of

ROUNDS = 6
# More digits than a double holds: as a double it is a little lower. An operator may store it with SQL.
LONG = "0.1000000000000000001"


@pytest.fixture
async def database(world: World) -> AsyncIterator[Database]:
    """As a worker has it."""
    database = Database(app_url(world.database_url), DatabaseSettings())
    await database.open()
    # What other tests of this process left behind must not be counted.
    while await release_actions(database):
        pass
    yield database
    await database.close()


async def limit(world: World, scope: LimitScope, session_id: str, **values: float | None) -> None:
    if scope is LimitScope.DAY:
        answer = await world.patch("/v1/workspace", {"limits": {"day": values}})
    else:
        answer = await world.patch(f"/v1/sessions/{session_id}", {"limits": {scope: values}})
    assert answer.status_code == 200, answer.text


async def closings(world: World, session_id: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "action.resolved"]


@pytest.mark.parametrize("scope", list(LimitScope))
async def test_a_changed_limit(world: World, database: Database, scope: LimitScope) -> None:
    session_id = await world.new_session()
    webhook_id = await world.new_webhook("https://example.com/hook", "action.resolved")
    for unchanged, raised in (
        ({"max_tokens": 100}, {"max_tokens": 101}),
        ({"max_tokens": 99}, {"max_tokens": None}),
        ({"max_tokens": 100, "max_cost_usd": 5}, {"max_tokens": None, "max_cost_usd": 1}),
    ):
        await limit(world, scope, session_id, **unchanged)
        _, run_id, (action_id,) = await waiting_run(world, budget(scope), session_id=session_id)
        assert await release_actions(database) == 0
        await limit(world, scope, session_id, **raised)
        assert await release_actions(database) == 1
        action = (await world.get(f"/v1/actions/{action_id}")).json()
        assert (action["state"], action["resolution"]) == ("resolved", {"decision": "raise"})
        assert action["resolved_by"] is None
        closing = (await closings(world, session_id))[-1]
        assert {name: closing[name] for name in ("action_id", "state")} == {"action_id": action_id, "state": "resolved"}
        assert ((await world.get(f"/v1/runs/{run_id}")).json()["state"], await jobs_of(world, run_id)) == ("queued", 1)
        late = await world.post(f"/v1/actions/{action_id}/resolve", {"decision": "raise", "max_tokens": 500})
        assert error_of(late) == (409, "conflict")
        assert "limit was raised" in late.json()["error"]["message"]
        await world.post(f"/v1/runs/{run_id}/cancel", None)
    query = "SELECT count(*) FROM webhook_deliveries WHERE webhook_id = %s"
    assert await world.fetch(query, webhook_id) == [(3,)]


async def test_a_limit_with_many_digits_is_not_raised_by_rounding(world: World, database: Database) -> None:
    query = "UPDATE workspaces SET daily_max_cost_usd = %s::numeric WHERE id = %s"
    await world.execute(query, LONG, world.workspace_id)
    await waiting_run(world, budget(LimitScope.DAY, max_cost_usd=float(LONG)))
    assert await release_actions(database) == 0


async def test_the_next_day(world: World, database: Database) -> None:
    """Only the limit of the day, and only its action: another kind has no limit that could be raised."""
    aged = "UPDATE runs SET waiting_since = waiting_since - interval '1 day' WHERE id = %s"
    waiting = []
    for scope in LimitScope:
        session_id, run_id, _ = await waiting_run(world, budget(scope), approval())
        await limit(world, scope, session_id, max_tokens=100)
        waiting.append((scope, run_id))
    assert await release_actions(database) == 0
    for scope, run_id in waiting:
        await world.execute(aged, run_id)
        assert await release_actions(database) == (1 if scope is LimitScope.DAY else 0)
        assert (await world.get(f"/v1/runs/{run_id}")).json()["state"] == "waiting", "the approval is open"


async def test_an_answer_at_the_same_time(world: World, database: Database) -> None:
    for number in range(ROUNDS):
        session_id, run_id, (action_id,) = await waiting_run(world, budget(LimitScope.SESSION))
        answering = asyncio.create_task(world.post(f"/v1/actions/{action_id}/resolve", {"decision": "stop"}))
        # Half of the time the answer has a start.
        await asyncio.sleep(0.01 * (number % 2))
        counts = await asyncio.gather(*(release_actions(database) for _ in range(3)))
        answer = await answering
        assert answer.status_code in (200, 409), answer.text
        assert sum(counts) == (0 if answer.status_code == 200 else 1)
        (closing,) = await closings(world, session_id)
        assert closing["resolution"]["decision"] == ("stop" if answer.status_code == 200 else "raise")
        assert ((await world.get(f"/v1/runs/{run_id}")).json()["state"], await jobs_of(world, run_id)) == ("queued", 1)


async def test_several_workers_release_each_action_once(world: World, database: Database) -> None:
    runs = [await waiting_run(world, budget(LimitScope.DAY)) for _ in range(7)]
    async with await world.connect() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (runs[0][0],))
        counts = await asyncio.gather(*(release_actions(database, batch=3) for _ in range(4)))
        assert len(await closings(world, runs[0][0])) == 0
    counts.append(await release_actions(database, batch=3))
    assert sum(counts) == 7
    for session_id, run_id, (action_id,) in runs:
        assert [one["action_id"] for one in await closings(world, session_id)] == [action_id]
        assert await jobs_of(world, run_id) == 1
