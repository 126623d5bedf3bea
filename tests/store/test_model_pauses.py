"""How long a model is left alone after a refusal."""

from typing import Any
from uuid import uuid4

from tests.world import World

BASE, LONGEST = 0.5, 30.0


async def refused(world: World, run_id: object, retry_after: float = 0) -> float:
    """Each workspace of a test has a model of its own."""
    query = "SELECT pause_model(%s, %s, 'Slow down.', %s, %s, %s)"
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


async def test_a_pause_that_nobody_waits_for_ends(world: World) -> None:
    query = "SELECT FROM release_waiting_runs(60, 3600) WHERE model = %s"
    await refused(world, uuid4())
    assert len(await world.fetch(query, str(world.workspace_id))) == 1
    await due(world)
    assert await world.fetch(query, str(world.workspace_id)) == []
