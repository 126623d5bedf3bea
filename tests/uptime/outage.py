"""The database goes away under load and comes back: what callers are answered meanwhile, how soon all is well again,
and whether anything is left behind."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

import httpx
import psutil
from bench.figures import Figure
from msgspec import Struct

from tests.fault.postgres import Postgres
from tests.uptime.callers import Callers
from tests.uptime.fleet import Fleet
from tests.uptime.traffic import Asked, Ground, Traffic, kinds
from tests.workers import at_rest
from tests.world import World

# What is promised.
ANSWER_SECONDS = 5.0
BACK_SECONDS = 5.0
# Only a fault takes this long.
_PATIENCE_SECONDS = 60.0
# For what closes by itself a while after it was needed.
_SETTLE_SECONDS = 20.0


class How(StrEnum):
    STOPPED = "stopped"
    KILLED = "killed"
    PAUSED = "paused"


class Held(Struct, frozen=True):
    """What the processes hold at rest."""

    connections: int
    files: dict[str, int]
    # Shown and not judged: those of a thread pool come and go with the work.
    threads: dict[str, int]

    def beyond(self, other: "Held") -> dict[str, int]:
        """What is more than the other."""
        counts = {"connections": (self.connections, other.connections)}
        counts |= {f"files of {name}": (count, other.files[name]) for name, count in self.files.items()}
        return {name: now - then for name, (now, then) in counts.items() if now > then}


class Outage(Struct, frozen=True):
    how: How
    seconds: float
    slowest_seconds: float
    slowest_kind: str
    answers: int
    improper: int
    statuses: dict[str, int]
    first_success_seconds: float
    run_seconds: float
    workers_seconds: float
    # Until the last of: each kind of request succeeds at each API, a run ends, every worker is there, no request fails
    # any more.
    full_service_seconds: float
    # Until all runs have ended, also those that the outage interrupted: their workers are taken for dead first.
    rest_seconds: float
    lost: int
    doubled: int
    misread: int
    before: Held
    after: Held

    def figures(self) -> list[Figure]:
        name = f"{self.how} for {self.seconds:g} s"
        beyond = self.after.beyond(self.before)
        return [
            Figure(f"{name}: slowest answer ({self.slowest_kind})", self.slowest_seconds, "s", ANSWER_SECONDS),
            Figure(f"  … of {self.answers} answers, not the envelope", self.improper, "", 0),
            Figure("  … back: first success", self.first_success_seconds, "s"),
            Figure("  … back: a run has ended", self.run_seconds, "s", BACK_SECONDS),
            Figure("  … back: every worker", self.workers_seconds, "s", BACK_SECONDS),
            Figure("  … back: full service", self.full_service_seconds, "s", BACK_SECONDS),
            Figure("  … back: interrupted runs have ended too", self.rest_seconds, "s"),
            Figure("  … acknowledged inputs lost", self.lost, "", 0),
            Figure("  … inputs stored twice", self.doubled, "", 0),
            Figure("  … events missed or doubled by followers", self.misread, "", 0),
            Figure("  … connections to the database left over", beyond.get("connections", 0), "", 0),
            Figure("  … open files left over", sum(beyond.values()) - beyond.get("connections", 0), "", 0),
        ]


async def measure(
    postgres: Postgres, fleet: Fleet, world: World, how: How, seconds: float, *, clients: int = 2
) -> Outage:
    ground = await Ground.prepare(world)
    ports = [api.port for api in fleet.apis]
    # Once without an outage, so that everything that is made at first use is there before it is counted.
    warm_up = Traffic("before", ground, ports, clients)
    async with warm_up.flowing():
        await _all_kinds_succeeded(warm_up, ground, ports, time.monotonic())
    await at_rest(world, *ground.sessions)
    before = await _held(world, fleet, None)
    traffic, callers = Traffic("during", ground, ports, clients), Callers(fleet.apis[0].url, ground)
    async with callers.following():
        async with traffic.flowing():
            await asyncio.sleep(1)
            began = time.monotonic()
            async with _away(postgres, how):
                await asyncio.sleep(seconds)
            back = time.monotonic()
            run_seconds, workers_seconds = await asyncio.gather(
                _run_ends(world, back), _workers_return(world, fleet, how, back)
            )
            successes = await _all_kinds_succeeded(traffic, ground, ports, back)
            # A failure that comes later than the first success of its kind is one all the same.
            await asyncio.sleep(2)
        await at_rest(world, *ground.sessions)
        rest_seconds = time.monotonic() - back
        lost, doubled = await traffic.misstored(world)
        misread = await callers.misread(world)
    during = [asked for asked in traffic.asked if asked.ended > began and asked.began < back]
    slowest = max(during, key=lambda asked: asked.ended - asked.began)
    failed = [asked.ended - back for asked in traffic.asked if asked.began >= back and not asked.succeeded]
    return Outage(
        how=how,
        seconds=seconds,
        slowest_seconds=slowest.ended - slowest.began,
        slowest_kind=slowest.kind,
        answers=len(during),
        improper=sum(not asked.proper for asked in during),
        statuses={str(status): count for status, count in Counter(asked.status for asked in during).items()},
        first_success_seconds=min(successes),
        run_seconds=run_seconds,
        workers_seconds=workers_seconds,
        rest_seconds=rest_seconds,
        full_service_seconds=max([run_seconds, workers_seconds, *successes, *failed]),
        lost=lost,
        doubled=doubled,
        misread=misread + len(callers.failures),
        before=before,
        after=await _held(world, fleet, before),
    )


@asynccontextmanager
async def _away(postgres: Postgres, how: How) -> AsyncIterator[None]:
    if how is How.PAUSED:
        with postgres.paused():
            yield
        return
    await asyncio.to_thread(postgres.stop, signal.SIGQUIT if how is How.KILLED else signal.SIGINT)
    try:
        yield
    finally:
        await asyncio.to_thread(postgres.start)


async def _all_kinds_succeeded(traffic: Traffic, ground: Ground, ports: list[int], since: float) -> list[float]:
    """How long each kind took at each port, from then to the end of its first success that began after it."""
    wanted = {(kind, port) for kind in kinds(ground) for port in ports}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        first: dict[tuple[str, int], Asked] = {}
        for asked in traffic.asked:
            if asked.succeeded and asked.began >= since:
                first.setdefault((asked.kind, asked.port), asked)
        if set(first) == wanted:
            return [asked.ended - since for asked in first.values()]
        assert time.monotonic() < deadline, f"still failing: {sorted(wanted - set(first))}"
        await asyncio.sleep(0.05)


async def _run_ends(world: World, since: float) -> float:
    """Seconds until a run has ended that was started after that."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    run_id: str | None = None
    while True:
        with suppress(httpx.TransportError, AssertionError):
            if run_id is None:
                submitted = await world.submit(await world.new_session())
                run_id = submitted.json()["run_id"] if submitted.status_code == 200 else None
            if run_id is not None and (await world.get(f"/v1/runs/{run_id}")).json().get("state") == "succeeded":
                return time.monotonic() - since
        assert time.monotonic() < deadline, "no run ends"
        await asyncio.sleep(0.05)


async def _workers_return(world: World, fleet: Fleet, how: How, since: float) -> float:
    """Seconds until every worker has put itself on the queue's list again. Those of a database that was only paused
    are on it still, and prove that they live every five seconds only: nothing is waited for."""
    if how is How.PAUSED:
        return 0.0
    ((back,),) = await world.fetch("SELECT pg_postmaster_start_time()")
    query = "SELECT FROM jobs.procrastinate_workers WHERE last_heartbeat > %s"
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(await world.fetch(query, back)) < len(fleet.workers):
        assert time.monotonic() < deadline, "a worker does not return"
        await asyncio.sleep(0.05)
    return time.monotonic() - since


async def _held(world: World, fleet: Fleet, wanted: Held | None) -> Held:
    """Given what is wanted, it is waited for, for a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        await asyncio.sleep(1)
        held = Held(await connections_of(world), *_counts(fleet))
        if wanted is None or not held.beyond(wanted) or time.monotonic() > deadline:
            return held


async def connections_of(world: World) -> int:
    query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """
    ((count,),) = await world.fetch(query)
    return int(count)


def _counts(fleet: Fleet) -> tuple[dict[str, int], dict[str, int]]:
    """Open files and threads of each process with those that it started."""
    families: dict[str, list[psutil.Process]] = {process.name: process.family() for process in fleet.processes()}
    return (
        {name: sum(one.num_fds() for one in family) for name, family in families.items()},
        {name: sum(one.num_threads() for one in family) for name, family in families.items()},
    )
