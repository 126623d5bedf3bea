"""Limits of concurrent requests and of tokens a minute, which hold for all workers together."""

from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from tests.world import World

Limits = dict[str, dict[str, int]]


class Line:
    """Runs that want to ask models of one provider. Tests share the database: each has a provider of its own."""

    def __init__(self, world: World, **limit: int) -> None:
        self.world = world
        self.provider = f"p{uuid4().hex}"
        self.model = f"{self.provider}:m"
        self.limits: Limits = {self.provider: limit}

    async def run(self, world: World | None = None) -> str:
        """A new run that a worker drives."""
        world = world or self.world
        session_id = (await world.post("/v1/sessions", {"sandbox": None})).json()["id"]
        run_id: str = (await world.submit(session_id, "Hello.")).json()["run_id"]
        await self.drive(run_id)
        return run_id

    async def drive(self, run_id: str) -> None:
        """As a worker that takes the job of the run."""
        query = "UPDATE runs SET state = 'running', attempt = attempt + 1, waits_for_models = NULL WHERE id = %s"
        await self.world.execute(query, run_id)
        await self.world.execute("DELETE FROM run_jobs WHERE run_id = %s", run_id)

    async def begins(self, run_id: str, tokens: int = 0, model: str | None = None) -> bool:
        """Otherwise the run waits."""
        model = model or self.model
        query = "SELECT begin_model_request(r.id, r.workspace_id, r.attempt, %s, %s, %s) FROM runs r WHERE r.id = %s"
        [(begun,)] = await self.world.fetch(query, model, tokens, Jsonb(self.limits), run_id)
        if not begun:
            query = "UPDATE runs SET state = 'queued', waits_for_models = ARRAY[%s] WHERE id = %s"
            await self.world.execute(query, model, run_id)
        return bool(begun)

    async def ends(self, run_id: str, tokens: int = 0) -> None:
        query = "SELECT end_model_request(r.id, r.attempt, %s, %s, %s) FROM runs r WHERE r.id = %s"
        await self.world.execute(query, self.model, tokens, Jsonb(self.limits), run_id)

    async def release(self) -> None:
        await self.world.execute("SELECT FROM release_waiting_runs(60, 3600, %s)", Jsonb(self.limits))

    async def let_go(self, *run_ids: str) -> list[str]:
        """Those of the runs that have a job."""
        query = "SELECT run_id::text FROM run_jobs WHERE run_id = ANY (%s::uuid[])"
        found = {run_id for (run_id,) in await self.world.fetch(query, list(run_ids))}
        return [run_id for run_id in run_ids if run_id in found]


async def test_concurrent_requests(world: World) -> None:
    line = Line(world, concurrent=2)
    runs = [await line.run() for _ in range(4)]
    assert [await line.begins(run_id) for run_id in runs] == [True, True, False, False]
    await line.release()
    assert await line.let_go(*runs) == []
    await line.ends(runs[0])
    assert await line.let_go(*runs) == [runs[2]]
    # The room is taken: another one waits behind those who wait, and the first has to queue up again.
    newcomer = await line.run()
    assert not await line.begins(newcomer)
    assert not await line.begins(runs[0])
    await line.drive(runs[2])
    assert await line.begins(runs[2])
    await line.ends(runs[1])
    await line.ends(runs[2])
    assert await line.let_go(runs[0], runs[3], newcomer) == [runs[0], runs[3]]


async def test_limits_of_a_model_and_of_its_provider(world: World) -> None:
    line = Line(world, concurrent=2)
    line.limits[line.model] = {"concurrent": 1}
    first, second, third, fourth = [await line.run() for _ in range(4)]
    assert await line.begins(first)
    assert not await line.begins(second)
    # Those who wait for this model are not in the way of others.
    other = f"{line.provider}:other"
    assert await line.begins(third, model=other)
    assert not await line.begins(fourth, model=other)
    await line.ends(first)
    assert await line.let_go(second, fourth) == [second]


async def test_tokens_a_minute(world: World) -> None:
    line = Line(world, tokens_a_minute=6000)
    runs = [await line.run() for _ in range(4)]
    assert [await line.begins(run_id, 2500) for run_id in runs] == [True, True, False, False]
    # They used more than estimated.
    await line.ends(runs[0], 4000)
    await line.ends(runs[1], 2500)
    await line.release()
    assert await line.let_go(*runs) == []
    age = "UPDATE model_limits SET counted_at = counted_at - interval '40 seconds' WHERE name = %s"
    await world.execute(age, line.provider)
    await line.release()
    assert await line.let_go(*runs) == [runs[2]]


async def test_a_request_with_more_tokens_than_the_limit_is_not_stuck(world: World) -> None:
    line = Line(world, tokens_a_minute=100)
    first, second = await line.run(), await line.run()
    assert await line.begins(first, 5000)
    assert not await line.begins(second, 1)


async def test_workspaces_take_turns(world: World) -> None:
    line = Line(world, concurrent=1)
    other = await World.create(world.database_url, world.http)
    running = await line.run()
    many = [await line.run() for _ in range(4)]
    few = [await line.run(other) for _ in range(2)]
    assert await line.begins(running)
    assert [await line.begins(run_id) for run_id in (*many, *few)] == [False] * 6
    order = []
    for _ in range(6):
        await line.ends(running)
        [running] = [run_id for run_id in await line.let_go(*many, *few) if run_id not in order]
        order.append(running)
        await line.drive(running)
        assert await line.begins(running)
    assert order == [many[0], few[0], many[1], few[1], many[2], many[3]]


@pytest.mark.parametrize(
    "change",
    [
        # Its worker is lost, and another one has begun.
        "UPDATE runs SET attempt = attempt + 1 WHERE id = %s",
        "UPDATE runs SET state = 'failed', finished_at = now() WHERE id = %s",
        "UPDATE runs SET state = 'queued' WHERE id = %s",
        "DELETE FROM runs WHERE id = %s",
    ],
)
async def test_nothing_stays_counted_after_an_attempt_has_ended(world: World, change: str) -> None:
    line = Line(world, concurrent=1)
    first, second = await line.run(), await line.run()
    assert await line.begins(first)
    assert not await line.begins(second)
    await world.execute(change, first)
    await line.release()
    assert await line.let_go(second) == [second]


async def test_a_run_that_was_let_go_in_vain_does_not_count_for_ever(world: World) -> None:
    line = Line(world, concurrent=1)
    first, second, third = [await line.run() for _ in range(3)]
    assert [await line.begins(run_id) for run_id in (first, second, third)] == [True, False, False]
    await line.ends(first)
    assert await line.let_go(second, third) == [second]
    age = "UPDATE model_requests SET begun_at = begun_at - interval '11 seconds' WHERE run_id = %s"
    await world.execute(age, second)
    await line.release()
    assert await line.let_go(second, third) == [second, third]
    await line.drive(second)
    assert not await line.begins(second)


async def test_cancelled_runs_are_not_let_go(world: World) -> None:
    line = Line(world, concurrent=1)
    first, second, third = [await line.run() for _ in range(3)]
    assert [await line.begins(run_id) for run_id in (first, second, third)] == [True, False, False]
    assert (await world.post(f"/v1/runs/{second}/cancel", {})).json()["state"] == "cancelled"
    await line.ends(first)
    assert await line.let_go(second, third) == [third]


async def test_runs_go_on_if_the_limit_is_removed(world: World) -> None:
    line = Line(world, concurrent=1)
    first, second = await line.run(), await line.run()
    assert [await line.begins(first), await line.begins(second)] == [True, False]
    line.limits = {}
    await line.release()
    assert await line.let_go(second) == [second]


async def test_the_run_that_tries_a_paused_model_goes_first(world: World) -> None:
    line = Line(world, concurrent=1)
    first, second, third = [await line.run() for _ in range(3)]
    assert [await line.begins(run_id) for run_id in (first, second, third)] == [True, False, False]
    pause = "SELECT pause_model(%s, %s, 'Slow down.', true, 0, 60, 60)"
    await world.execute(pause, line.model, first)
    await line.ends(first)
    assert await line.let_go(second, third) == []
    await world.execute("UPDATE model_pauses SET until = now() WHERE model = %s", line.model)
    await line.release()
    assert await line.let_go(second, third) == [second]
    await line.drive(second)
    assert await line.begins(second)
    await world.execute("SELECT resume_model(%s, %s)", line.model, second)
    await line.ends(second)
    assert await line.let_go(third) == [third]
