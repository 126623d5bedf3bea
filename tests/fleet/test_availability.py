"""`make availability` in small: an outage of the database, and every process restarted in turn, under load."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fleet.fleet import SHORT_LEASE, Fleet, FleetOptions, running_fleet
from tests.fleet.outage import MAX_FILES_LEFT, Outage, measure_outage
from tests.fleet.recovery import wait_for_recovery
from tests.fleet.rolling import RollingResult, measure_rolling_restarts
from tests.workers import eventually

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

# A worker gives up on its queue well before a short outage ends, and its lease expires soon.
SETTINGS: dict[str, object] = {"DATABASE_POOL_WAIT_SECONDS": 1, **SHORT_LEASE}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="qd-available-"))
    async with running_fleet(folder, FleetOptions(workers=2, settings=SETTINGS)) as fleet:
        yield fleet
    shutil.rmtree(folder)


async def test_an_outage_is_answered_and_the_fleet_recovers(fleet: Fleet) -> None:
    """Paused is the hardest kind: connections stay open and nothing is answered."""
    result = await measure_outage(fleet, Outage.PAUSED, 5, seed=1)
    assert result.violations == []
    assert result.improper == 0
    assert result.outcomes["503"] > 0
    assert result.connections_left == 0
    assert result.files_left <= MAX_FILES_LEFT


async def test_workers_keep_trying_to_reach_the_database(fleet: Fleet) -> None:
    """The queue's library would pause for longer and longer, and runs would wait after the return."""

    def tries() -> list[int]:
        return [worker.log.read_text().count("the queue is not reachable") for worker in fleet.workers]

    async def look() -> bool:
        return all(now >= then + 3 for now, then in zip(tries(), before, strict=True))

    before = tries()
    fleet.postgres.stop()
    try:
        await eventually(look)
    finally:
        fleet.postgres.start()
    assert await wait_for_recovery(fleet) is not None


async def test_rolling_restarts_lose_nothing(fleet: Fleet) -> None:
    check_rolling(await measure_rolling_restarts(fleet, 1, seed=2), restarts=4)


async def test_rolling_restarts_under_qd_serve_lose_nothing() -> None:
    folder = Path(tempfile.mkdtemp(prefix="qd-available-"))
    async with running_fleet(folder, FleetOptions(workers=2, as_qd_serve=True)) as fleet:
        result = await measure_rolling_restarts(fleet, 1, seed=3)
    shutil.rmtree(folder)
    check_rolling(result, restarts=3)


def check_rolling(result: RollingResult, restarts: int) -> None:
    assert result.violations == []
    assert result.unacknowledged == 0
    assert result.restarts == restarts
