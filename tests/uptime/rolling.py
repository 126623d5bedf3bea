"""All processes one after the other are ended by SIGTERM and started again, while callers who use our client go on.

Two arrangements: `qd serve`, which hands its listening sockets down, and API processes behind a balancer.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
from bench.figures import Figure
from msgspec import Struct

from tests.uptime.balancer import balancing
from tests.uptime.callers import Callers
from tests.uptime.fleet import Fleet, Process, environment_of, until_ready
from tests.uptime.traffic import Ground, misstored
from tests.workers import at_rest, eventually
from tests.world import STOP_SECONDS, World, free_port

# Between two processes: so long do the callers have everything.
_PAUSE_SECONDS = 0.5
_COMMANDS = ("api", "worker")


class Rolled(Struct, frozen=True):
    arrangement: str
    restarts: int
    took_seconds: float
    calls: dict[str, int]
    failures: list[str]
    # Answers and broken connections that the client made up for, by their words.
    failed_tries: dict[str, int]
    lost: int
    doubled: int
    misread: int
    miscreated: int

    def figures(self) -> list[Figure]:
        name = f"{self.arrangement}: {self.restarts} restarts"
        return [
            Figure(f"{name}, calls that failed", len(self.failures), "", 0),
            Figure("  … calls", sum(self.calls.values()), ""),
            Figure("  … tries that the client repeated", sum(self.failed_tries.values()), ""),
            Figure("  … acknowledged inputs lost", self.lost, "", 0),
            Figure("  … inputs stored twice", self.doubled, "", 0),
            Figure("  … events missed or doubled by followers", self.misread, "", 0),
            Figure("  … keys and versions lost or doubled", self.miscreated, "", 0),
        ]


async def behind_a_balancer(fleet: Fleet, world: World, *, rounds: int = 1, submitters: int = 4) -> Rolled:
    async def roll() -> int:
        for _ in range(rounds):
            for process in fleet.processes():
                await asyncio.to_thread(process.stop)
                process.start()
                for api in fleet.apis:
                    await asyncio.to_thread(until_ready, api.url)
                await _workers_are_there(world, len(fleet.workers))
                await asyncio.sleep(_PAUSE_SECONDS)
        return rounds * len(fleet.processes())

    async with balancing([api.port for api in fleet.apis]) as port:
        return await _rolled("behind a balancer", f"http://127.0.0.1:{port}", world, roll, submitters)


class Served:
    """`qd serve`, and its children to be ended one by one."""

    def __init__(self, database_url: str, folder: Path, **settings: object) -> None:
        self.port = free_port()
        self._workers = int(str(settings.get("WORKER_PROCESSES", 1)))
        environment = environment_of(database_url, folder, SERVER_PORT=self.port, **settings)
        self.process = Process("serve", ["serve"], environment, folder / "serve.log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process.start()
        until_ready(self.url)

    async def measure(self, world: World, *, rounds: int = 1, submitters: int = 4) -> Rolled:
        async def roll() -> int:
            restarts = 0
            for _ in range(rounds):
                for child in await self._children():
                    child.send_signal(signal.SIGTERM)
                    await asyncio.to_thread(_gone, child)
                    # The supervisor starts it again; all are there when there are as many as before.
                    await self._children()
                    await asyncio.to_thread(until_ready, self.url)
                    await _workers_are_there(world, self._workers)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    restarts += 1
            return restarts

        return await _rolled("qd serve", self.url, world, roll, submitters)

    async def _children(self) -> list[psutil.Process]:
        async def look() -> list[psutil.Process] | None:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.process.pid).children()
                found = [child for child in children if child.cmdline()[-1:] and child.cmdline()[-1] in _COMMANDS]
                return found if len(found) == 1 + self._workers else None
            return None

        found: list[psutil.Process] = await eventually(look)
        return found


def _gone(child: psutil.Process) -> None:
    psutil.wait_procs([child], timeout=STOP_SECONDS)
    assert not child.is_running(), f"{child} does not end"


async def _rolled(
    arrangement: str, url: str, world: World, roll: Callable[[], Awaitable[int]], submitters: int
) -> Rolled:
    ground = await Ground.prepare(world)
    await _worker_finishes(world)
    callers = Callers(url, ground)
    began = time.monotonic()
    async with callers.following():
        async with callers.calling(submitters):
            await asyncio.sleep(_PAUSE_SECONDS)
            restarts = await roll()
        await at_rest(world, *ground.sessions)
        lost, doubled = await misstored(world, callers.submitted)
        misread = await callers.misread(world)
    return Rolled(
        arrangement=arrangement,
        restarts=restarts,
        took_seconds=time.monotonic() - began,
        calls=dict(callers.done),
        failures=callers.failures,
        failed_tries=dict(Counter(callers.failed_tries)),
        lost=lost,
        doubled=doubled,
        misread=misread,
        miscreated=await callers.miscreated(world),
    )


async def _worker_finishes(world: World) -> None:
    session_id = await world.new_session()
    assert (await world.submit(session_id)).status_code == 200
    await at_rest(world, session_id)


async def _workers_are_there(world: World, count: int) -> None:
    """One that ends takes itself off the list, and one that starts puts itself there."""

    async def look() -> bool:
        return len(await world.fetch("SELECT FROM jobs.procrastinate_workers")) >= count

    await eventually(look)
