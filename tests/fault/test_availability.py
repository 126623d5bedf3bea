"""`make availability` in small: outages of the database, and every process restarted in its turn, under load."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from quarterdeck.db.migrate import migrate
from tests.fault.postgres import Postgres
from tests.harness import outage
from tests.harness.availability import working_world
from tests.harness.fleet import Fleet, sailing
from tests.harness.outage import How
from tests.harness.rolling import Served, behind_a_balancer
from tests.world import World

# Five are promised, and `make availability` holds to that; the rest is for a busy machine. What hangs takes longer.
ANSWER_SECONDS = BACK_SECONDS = 20.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="qd-available-") as folder:
        postgres = Postgres(Path(folder))
        postgres.start()
        try:
            migrate(postgres.url)
            yield postgres
        finally:
            postgres.stop()


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with sailing(postgres.url, tmp_path_factory.mktemp("fleet"), apis=2, workers=2) as fleet:
        yield fleet


@pytest.fixture
async def here(postgres: Postgres, fleet: Fleet) -> AsyncIterator[World]:
    async with working_world(postgres.url, fleet.apis[0].url) as world:
        yield world


@pytest.mark.parametrize(("how", "seconds"), [(How.PAUSED, 5), (How.STOPPED, 4)])
async def test_an_outage_is_answered_and_passes(
    postgres: Postgres, fleet: Fleet, here: World, how: How, seconds: float
) -> None:
    tries_before = _tries_for_the_queue(fleet)
    found = await outage.measure(postgres, fleet, here, how, seconds, clients=1)
    assert found.slowest_seconds < ANSWER_SECONDS
    assert found.improper == 0
    assert found.statuses["503"] > 0
    assert found.full_service_seconds < BACK_SECONDS
    assert (found.lost, found.doubled, found.misread) == (0, 0, 0)
    assert found.after.beyond(found.before) == {}
    if how is How.STOPPED:
        # About each second: pauses that grow would leave runs waiting after the database's return.
        tries = [after - before for before, after in zip(tries_before, _tries_for_the_queue(fleet), strict=True)]
        assert min(tries) >= 2


def _tries_for_the_queue(fleet: Fleet) -> list[int]:
    return [worker.log.read_text().count("the queue is not reachable") for worker in fleet.workers]


async def test_callers_do_not_notice_that_every_process_is_restarted(fleet: Fleet, here: World) -> None:
    rolled = await behind_a_balancer(fleet, here)
    assert rolled.failures == []
    assert (rolled.lost, rolled.doubled, rolled.misread, rolled.miscreated) == (0, 0, 0, 0)
    assert all(rolled.calls[kind] for kind in ("submit", "read", "push", "create_key"))


async def test_callers_do_not_notice_restarts_of_what_is_supervised(postgres: Postgres, tmp_path: Path) -> None:
    served = Served(postgres.url, tmp_path)
    try:
        served.start()
        async with working_world(postgres.url, served.url) as world:
            rolled = await served.measure(world)
    finally:
        served.process.stop()
    assert rolled.restarts == 2
    assert rolled.failures == []
    assert (rolled.lost, rolled.doubled, rolled.misread, rolled.miscreated) == (0, 0, 0, 0)
