"""`make availability` in small: outages of the database, and every process restarted in its turn, under load."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fault.postgres import Postgres, own_postgres
from tests.uptime import outage
from tests.uptime.availability import working_world
from tests.uptime.fleet import Fleet, sailing
from tests.uptime.outage import How
from tests.uptime.rolling import behind_a_balancer
from tests.workers import at_rest, eventually
from tests.world import World

# Five are promised, and `make availability` holds to that; the rest is for a busy machine. What hangs takes longer.
ANSWER_SECONDS = BACK_SECONDS = 20.0
# Less than the half minute for which the queue's library would wait by itself.
QUEUE_SECONDS = 25.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with own_postgres("available") as postgres:
        yield postgres


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    # Less patience than by default: a worker gives up on its queue well before a short outage ends, and is soon taken
    # for dead.
    hasty = {"DATABASE_POOL_WAIT_SECONDS": 1, "WORKER_LEASE_SECONDS": 4, "WORKER_SWEEP_SECONDS": 0.5}
    with sailing(postgres.url, folder, apis=2, workers=2, **hasty) as fleet:
        yield fleet


@pytest.fixture
async def here(postgres: Postgres, fleet: Fleet) -> AsyncIterator[World]:
    async with working_world(postgres.url, fleet.apis[0].url) as world:
        yield world


async def test_an_outage_is_answered_and_passes(postgres: Postgres, fleet: Fleet, here: World) -> None:
    """Paused is the hardest: nobody is told that nobody answers."""
    found = await outage.measure(postgres, fleet, here, How.PAUSED, 5, clients=1)
    assert found.slowest_seconds < ANSWER_SECONDS
    assert found.improper == 0
    assert found.statuses["503"] > 0
    assert found.full_service_seconds < BACK_SECONDS
    assert (found.lost, found.doubled, found.misread) == (0, 0, 0)
    assert found.after.beyond(found.before) == {}


async def test_workers_look_for_their_database_again_and_again(postgres: Postgres, fleet: Fleet, here: World) -> None:
    """With pauses that grow, or half a minute spent on a pool that sleeps, runs would stand still after its return."""
    session_id = await here.new_session()

    async def look() -> bool:
        tries = [worker.log.read_text().count("the queue is not reachable") for worker in fleet.workers]
        return all(now >= then + 3 for now, then in zip(tries, before, strict=True))

    before = [worker.log.read_text().count("the queue is not reachable") for worker in fleet.workers]
    postgres.stop()
    try:
        await eventually(look, QUEUE_SECONDS)
    finally:
        postgres.start()
    assert (await here.submit(session_id)).status_code == 200
    await at_rest(here, session_id, seconds=BACK_SECONDS)


async def test_callers_do_not_notice_that_every_process_is_restarted(fleet: Fleet, here: World) -> None:
    rolled = await behind_a_balancer(fleet, here, submitters=1)
    assert rolled.failures == []
    assert (rolled.lost, rolled.doubled, rolled.misread, rolled.miscreated) == (0, 0, 0, 0)
    assert all(rolled.calls[kind] for kind in ("submit", "read", "push", "create_key"))
