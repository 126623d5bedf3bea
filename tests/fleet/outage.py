"""The database goes away under load and comes back: how clients are answered, how soon the fleet recovers, and whether
anything is lost or left open."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

from bench.figures import Figure
from msgspec import Struct

from tests.fleet.audited_load import AuditedLoad
from tests.fleet.fleet import Fleet
from tests.fleet.history import History
from tests.fleet.recovery import RECOVERY_SECONDS, wait_for_recovery
from tests.fleet.resources import count_connections, count_files

# Promised.
ANSWER_SECONDS = 5.0
# Targets. Interrupted runs continue when the lease of their worker has expired, so they take longer.
WORKERS_SECONDS = 5.0
# A leak of one file for each failed request or connection would be far above this.
MAX_FILES_LEFT = 10
# Connections and files that are no longer needed may be closed a while later.
_SETTLE_SECONDS = 30.0
_LEVEL_SECONDS = 1.5


class Outage(StrEnum):
    STOPPED = "stopped"
    KILLED = "killed"
    PAUSED = "paused"


class OutageResult(Struct, frozen=True):
    kind: Outage
    seconds: float
    slowest_seconds: float
    answers: int
    # Answers that are neither a success nor the error envelope.
    improper: int
    outcomes: dict[str, int]
    # None: the workers did not lose their connections.
    workers_seconds: float | None
    recovery_seconds: float
    # Attempts after the return that failed: the time of the last one.
    last_failure_seconds: float
    violations: list[str]
    connections_left: int
    files_left: int

    def figures(self) -> list[Figure]:
        return [
            Figure(f"{self.kind} for {self.seconds:g} s: slowest answer", self.slowest_seconds, "s", ANSWER_SECONDS),
            Figure(f"  … of {self.answers} answers, not the envelope", self.improper, "", 0),
            Figure("  … after its return: every worker is back", self.workers_seconds or 0.0, "s", WORKERS_SECONDS),
            Figure("  … after its return: last failed request", self.last_failure_seconds, "s", WORKERS_SECONDS),
            Figure("  … after its return: interrupted runs progress", self.recovery_seconds, "s"),
            Figure("  … violations of the promises", len(self.violations), "", 0),
            Figure("  … connections to the database left open", self.connections_left, "", 0),
            Figure("  … files left open", self.files_left, "", MAX_FILES_LEFT),
        ]


async def measure_outage(fleet: Fleet, kind: Outage, seconds: float, seed: int) -> OutageResult:
    await _warm_up(fleet, seed)
    connections, files = await _level_connections(fleet), count_files(fleet)
    history = History()
    async with AuditedLoad(fleet, history, seed) as load:
        await asyncio.sleep(1)
        began = time.monotonic()
        async with _database_away(fleet, kind):
            await asyncio.sleep(seconds)
        returned = time.monotonic()
        workers_seconds, recovery_seconds = await asyncio.gather(
            _wait_for_workers(fleet, kind, returned), wait_for_recovery(fleet)
        )
        # A request that fails later than the first success counts too.
        await asyncio.sleep(2)
        attempts = list(history.attempts)
        await load.finish()
    more_connections, more_files = await _settle(fleet, connections, files)
    during = [attempt for attempt in attempts if attempt.ended > began and attempt.began < returned]
    answered = [attempt for attempt in during if attempt.outcome.isdigit()]
    failed = [attempt.ended - returned for attempt in attempts if attempt.began >= returned and attempt.is_failure]
    return OutageResult(
        kind=kind,
        seconds=seconds,
        slowest_seconds=max(attempt.seconds for attempt in during),
        answers=len(answered),
        improper=sum(not attempt.is_proper for attempt in answered),
        outcomes=dict(Counter(attempt.outcome for attempt in during)),
        workers_seconds=workers_seconds,
        recovery_seconds=RECOVERY_SECONDS if recovery_seconds is None else recovery_seconds,
        last_failure_seconds=max(failed, default=0.0),
        violations=history.violations,
        connections_left=more_connections,
        files_left=more_files,
    )


async def _warm_up(fleet: Fleet, seed: int) -> None:
    """A few seconds of load, so that everything that is created at first use exists before it is counted."""
    # Another seed: a seed also determines the Idempotency-Keys.
    async with AuditedLoad(fleet, History(), -1 - seed) as load:
        await asyncio.sleep(3)
        await load.finish()


@asynccontextmanager
async def _database_away(fleet: Fleet, kind: Outage) -> AsyncIterator[None]:
    if kind is Outage.PAUSED:
        with fleet.postgres.paused():
            yield
        return
    await asyncio.to_thread(fleet.postgres.stop, signal.SIGQUIT if kind is Outage.KILLED else signal.SIGINT)
    try:
        yield
    finally:
        await asyncio.to_thread(fleet.postgres.start)


async def _wait_for_workers(fleet: Fleet, kind: Outage, since: float) -> float | None:
    """Seconds until every worker has registered again. Workers of a paused database stay registered."""
    if kind is Outage.PAUSED:
        return None
    query = "SELECT FROM workers WHERE last_heartbeat > pg_postmaster_start_time()"
    async with asyncio.timeout(RECOVERY_SECONDS):
        while len(await fleet.fetch(query)) < len(fleet.workers):
            await asyncio.sleep(0.05)
    return time.monotonic() - since


async def _level_connections(fleet: Fleet) -> int:
    """The connections of the fleet once their number stays the same: a pool opens its connections one by one."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    count, since = await count_connections(fleet), time.monotonic()
    while time.monotonic() < min(deadline, since + _LEVEL_SECONDS):
        await asyncio.sleep(0.1)
        if (now := await count_connections(fleet)) != count:
            count, since = now, time.monotonic()
    return count


async def _settle(fleet: Fleet, connections: int, files: dict[str, int]) -> tuple[int, int]:
    """Wait a while until no more connections and files are open than before. Returns how many more there are."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        more = max(0, await count_connections(fleet) - connections), _more_files(fleet, files)
        if time.monotonic() > deadline or (more[0] == 0 and more[1] <= MAX_FILES_LEFT):
            return more
        await asyncio.sleep(0.5)


def _more_files(fleet: Fleet, before: dict[str, int]) -> int:
    return sum(max(0, count - before[name]) for name, count in count_files(fleet).items())
