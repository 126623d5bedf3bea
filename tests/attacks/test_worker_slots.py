"""A workspace that fills all slots of the workers. Runs of its neighbours start all the same, and nothing is lost."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.workers import at_rest, check_log, ended, eventually, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

SLOTS = 4
# Longer than a test: only what is handed back makes room.
NEVER = "demo: slow 99"
ANOTHER = "Another workspace needed its slot."


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database of its own: runs of other tests would take slots."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def neighbour(world: World) -> World:
    return await World.create(world.database_url, world.http)


async def submit(world: World, text: str, count: int = 1) -> dict[str, str]:
    """Starts runs in new sessions. Returns the session of each run."""
    sessions = [await world.new_session() for _ in range(count)]
    return {(await world.submit(session_id, text)).json()["run_id"]: session_id for session_id in sessions}


async def in_state(world: World, state: str) -> int:
    ((count,),) = await world.fetch(
        "SELECT count(*) FROM runs WHERE workspace_id = %s AND state = %s", world.workspace_id, state
    )
    return int(count)


async def running(world: World, count: int) -> None:
    async def look() -> bool:
        return await in_state(world, "running") == count

    await eventually(look)


async def requeued(world: World, sessions: dict[str, str]) -> list[str]:
    entries = [entry for session_id in sessions.values() for entry in await log_of(world, session_id)]
    return [entry["data"]["reason"] for entry in entries if entry["type"] == "run.requeued"]


async def order_of_starts(*worlds: World) -> list[World]:
    """Whose run was started, for each first start."""
    rows = await worlds[0].fetch("SELECT workspace_id FROM runs WHERE started_at IS NOT NULL ORDER BY started_at")
    by_id = {world.workspace_id: world for world in worlds}
    return [by_id[workspace_id] for (workspace_id,) in rows if workspace_id in by_id]


async def cancel(world: World, runs: dict[str, str]) -> None:
    for run_id in runs:
        assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    await at_rest(world, *runs.values())


async def check_all(world: World, runs: dict[str, str]) -> list[dict[str, Any]]:
    for session_id in runs.values():
        check_log(await log_of(world, session_id))
    return [(await world.get(f"/v1/runs/{run_id}")).json() for run_id in runs]


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_slow_runs_of_one_workspace_do_not_keep_another_waiting(
    world: World, server: Server, neighbour: World
) -> None:
    workers = 2
    with ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(working(server.database_url, server.data_dir, WORKER_CONCURRENCY=SLOTS))
        attack = await submit(world, NEVER, 5 * SLOTS)
        # Alone it uses all slots.
        await running(world, workers * SLOTS)

        (run_id,) = served = await submit(neighbour, "Hello.")
        assert (await ended(neighbour, run_id))["state"] == "succeeded"
        # It ended while the attack went on, and took one slot.
        assert await in_state(world, "succeeded") == 0
        assert await requeued(world, attack) == [ANOTHER]

        # With as many runs as the attacker, the neighbour gets half of the slots and no more.
        many = await submit(neighbour, NEVER, 5 * SLOTS)
        await running(neighbour, workers * SLOTS // 2)
        await running(world, workers * SLOTS // 2)
        await cancel(neighbour, many)
        # The slots go back to the attacker.
        await running(world, workers * SLOTS)
        await cancel(world, attack)
    await check_all(world, attack)
    await check_all(neighbour, many)
    assert [run["attempts"] for run in await check_all(neighbour, served)] == [1]


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_run_that_gave_its_slot_away_ends_as_if_nothing_had_happened(
    world: World, server: Server, neighbour: World
) -> None:
    settings = {"WORKER_CONCURRENCY": 2, "WORKER_LENDING_PAUSE_SECONDS": 0.5, "RUN_BARREN_ATTEMPTS": 2}
    with working(server.database_url, server.data_dir, **settings):
        attack = await submit(world, "demo: steps 3\ndemo: slow 4", 4)
        await running(world, 2)
        for _ in range(4):
            # More often than a run may lose its worker: giving a slot away does not count.
            (run_id,) = await submit(neighbour, "Hello.")
            assert (await ended(neighbour, run_id))["state"] == "succeeded"
        await at_rest(world, *attack.values())
    assert ANOTHER in await requeued(world, attack)
    for run in await check_all(world, attack):
        assert (run["state"], run["steps"], run["inputs_consumed"]) == ("succeeded", 4, 1)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_long_queue_does_not_delay_a_short_one(world: World, server: Server, neighbour: World) -> None:
    """Three workspaces queue many runs while no worker is there. Then they take turns."""
    third = await World.create(world.database_url, world.http)
    attack = await submit(world, "One of many.", 60)
    others = [(neighbour, await submit(neighbour, "One of few.", 5)), (third, await submit(third, "One of few.", 5))]
    with working(server.database_url, server.data_dir, WORKER_CONCURRENCY=2):
        await asyncio.gather(at_rest(world, *attack.values()), *(at_rest(w, *runs.values()) for w, runs in others))
    order = await order_of_starts(world, neighbour, third)
    assert len(order) == 70
    # One slot each and one turn: all fifteen starts of a round of five, give or take the slots that were free.
    assert [order[:20].count(one) for one in (neighbour, third)] == [5, 5]
    for owner, runs in [(world, attack), *others]:
        assert {(run["state"], run["attempts"]) for run in await check_all(owner, runs)} == {("succeeded", 1)}
