"""How long a model is left alone after a refusal."""

from typing import Any
from uuid import uuid4

from tests.world import World

BASE, LONGEST = 0.5, 30.0


async def refused(world: World, run_id: object, retry_after: float = 0) -> float:
    """Each workspace of a test has a model of its own."""
    query = "SELECT pause_model(%s, %s, 'Slow down.', true, %s, %s, %s)"
    [(seconds,)] = await world.fetch(query, str(world.workspace_id), run_id, retry_after, BASE, LONGEST)
    return round(float(seconds), 1)


async def due(world: World, probe: Any = None) -> None:
    query = "UPDATE model_pauses SET until = now() - interval '1 second', probe_run_id = %s WHERE model = %s"
    await world.execute(query, probe, str(world.workspace_id))


async def test_pauses_grow_while_the_provider_refuses(world: World) -> None:
    seconds = []
    for _ in range(9):
        seconds.append(await refused(world, probe := uuid4()))
        await due(world, probe)
    assert seconds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


async def test_the_announced_time_is_waited_for_up_to_a_limit(world: World) -> None:
    assert await refused(world, uuid4(), 7) == 7
    await due(world)
    assert await refused(world, uuid4(), 3600) == LONGEST


async def test_requests_that_were_under_way_do_not_lengthen_the_next_pause(world: World) -> None:
    assert await refused(world, uuid4()) == 0.5
    for _ in range(5):
        assert await refused(world, uuid4()) == 0.5
    await due(world)
    assert await refused(world, uuid4()) == 1


async def tries(world: World, run_id: object) -> bool:
    [(found,)] = await world.fetch("SELECT try_paused_model(%s, %s, 60)", str(world.workspace_id), run_id)
    return bool(found)


async def test_the_first_run_after_a_pause_tries(world: World) -> None:
    await refused(world, uuid4())
    assert not await tries(world, uuid4())
    await due(world)
    probe = uuid4()
    assert await tries(world, probe)
    assert not await tries(world, uuid4())
    await world.execute("SELECT resume_model(%s, %s)", str(world.workspace_id), uuid4())
    assert not await tries(world, uuid4())
    await world.execute("SELECT resume_model(%s, %s)", str(world.workspace_id), probe)
    assert await world.fetch("SELECT FROM model_pauses WHERE model = %s", str(world.workspace_id)) == []


async def test_a_pause_that_nobody_asks_for_is_forgotten(world: World) -> None:
    query = "SELECT FROM release_waiting_runs(60, 3600, '{}') WHERE model = %s"
    await refused(world, uuid4())
    await due(world)
    assert len(await world.fetch(query, str(world.workspace_id))) == 1
    age = "UPDATE model_pauses SET until = now() - interval '11 minutes' WHERE model = %s"
    await world.execute(age, str(world.workspace_id))
    assert await world.fetch(query, str(world.workspace_id)) == []


async def test_an_announced_pause_ends_a_trial(world: World) -> None:
    announce = "SELECT announce_model_pause(%s, 'No more.', 5)"
    await refused(world, uuid4())
    await due(world)
    probe = uuid4()
    assert await tries(world, probe)
    await world.execute(announce, str(world.workspace_id))
    await world.execute("SELECT resume_model(%s, %s)", str(world.workspace_id), probe)
    query = "SELECT extract(epoch FROM until - now())::float8, refused FROM model_pauses WHERE model = %s"
    [(seconds, is_refused)] = await world.fetch(query, str(world.workspace_id))
    assert 4 < seconds < 5.1
    assert is_refused
