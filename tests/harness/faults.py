"""What is broken, one thing after another and sometimes two at once, and how long it takes until all is well again."""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from tests.harness.fleet import LEASE_SECONDS, Api, Fleet
from tests.harness.history import History

# Nothing takes longer to be well again, or it never will.
RECOVERY_SECONDS = 60.0
TWO_AT_ONCE = 0.2
Break = Callable[[Fleet, random.Random], Awaitable[None]]


class Broken(Struct, frozen=True):
    what: str
    at: float
    # From its end until every API process takes an input, its run is through, and every run that was under way has
    # moved on. What is killed is started again at once.
    recovery_seconds: float


async def kill_api(fleet: Fleet, chance: random.Random) -> None:
    await chance.choice(fleet.apis).kill()


async def kill_worker(fleet: Fleet, chance: random.Random) -> None:
    await chance.choice(fleet.workers).kill()


async def drain_api(fleet: Fleet, chance: random.Random) -> None:
    await chance.choice(fleet.apis).drain()


async def drain_worker(fleet: Fleet, chance: random.Random) -> None:
    await chance.choice(fleet.workers).drain()


async def pause_api(fleet: Fleet, chance: random.Random) -> None:
    api = chance.choice(fleet.apis)
    api.signal(signal.SIGSTOP)
    await asyncio.sleep(chance.uniform(1.0, 4.0))
    api.signal(signal.SIGCONT)


async def pause_worker(fleet: Fleet, chance: random.Random) -> None:
    """For longer than its lease: when it wakes up, others have its runs."""
    worker = chance.choice(fleet.workers)
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_SECONDS + chance.uniform(1.0, 3.0))
    worker.signal(signal.SIGCONT)


async def end_backend(fleet: Fleet, chance: random.Random) -> None:
    """One connection's, as an administrator would."""
    backends = await fleet.backends()
    if backends:
        async with await fleet.connect() as connection:
            await connection.execute("SELECT pg_terminate_backend(%s)", (chance.choice(backends),))


async def kill_backend(fleet: Fleet, chance: random.Random) -> None:
    """PostgreSQL then ends all others and recovers from its log."""
    backends = await fleet.backends()
    if backends:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(backends), signal.SIGKILL)


async def restart_postgres(fleet: Fleet, chance: random.Random) -> None:
    await asyncio.to_thread(fleet.postgres.stop, signal.SIGINT)
    await asyncio.sleep(chance.uniform(0.0, 2.0))
    await asyncio.to_thread(fleet.postgres.start)


async def crash_postgres(fleet: Fleet, chance: random.Random) -> None:
    await asyncio.to_thread(fleet.postgres.stop, signal.SIGQUIT)
    await asyncio.sleep(chance.uniform(0.0, 2.0))
    await asyncio.to_thread(fleet.postgres.start)


async def slow_line(fleet: Fleet, chance: random.Random) -> None:
    fleet.line.delay(chance.uniform(0.02, 0.3))
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    fleet.line.delay(0.0)


async def dead_line(fleet: Fleet, chance: random.Random) -> None:
    fleet.line.swallow(on=True)
    await asyncio.sleep(chance.uniform(1.0, 6.0))
    if chance.random() < 0.5:
        fleet.line.cut()
    fleet.line.swallow(on=False)


async def cut_line(fleet: Fleet, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        fleet.line.cut()
        await asyncio.sleep(chance.uniform(0.0, 0.3))


async def fill_disk(fleet: Fleet, chance: random.Random) -> None:
    filler = fleet.bundles / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    filler.unlink()


async def exhaust_pool(fleet: Fleet, chance: random.Random) -> None:
    """Every connection of every pool comes to wait for one table."""
    async with await fleet.connect() as connection, connection.transaction():
        await connection.execute("LOCK TABLE api_keys, sessions IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(chance.uniform(1.0, 5.0))


async def exhaust_connections(fleet: Fleet, chance: random.Random) -> None:
    """Strangers take every connection that PostgreSQL has to give, and ours are ended."""
    crowd: list[AsyncConnection[tuple[Any, ...]]] = []
    backends = await fleet.backends()
    try:
        with suppress(psycopg.OperationalError):
            while True:
                crowd.append(await fleet.connect())
        for pid in chance.sample(backends, len(backends) // 2) if crowd else ():
            await crowd[0].execute("SELECT pg_terminate_backend(%s)", (pid,))
            with suppress(psycopg.OperationalError):
                crowd.append(await fleet.connect())
        await asyncio.sleep(chance.uniform(1.0, 3.0))
    finally:
        for connection in crowd:
            await connection.close()


async def jump_clock(fleet: Fleet, chance: random.Random) -> None:
    """Of one process, by up to two hours in either direction. It stays there for a while."""
    member = chance.choice(fleet.members)
    member.clock.set(chance.uniform(-7200.0, 7200.0))
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    member.clock.set(0.0)


DECK: dict[str, Break] = {
    "kill an API process": kill_api,
    "kill a worker": kill_worker,
    "drain an API process": drain_api,
    "drain a worker": drain_worker,
    "pause an API process": pause_api,
    "pause a worker": pause_worker,
    "end a connection": end_backend,
    "kill a backend": kill_backend,
    "restart PostgreSQL": restart_postgres,
    "crash PostgreSQL": crash_postgres,
    "slow line": slow_line,
    "dead line": dead_line,
    "cut line": cut_line,
    "fill the disk": fill_disk,
    "exhaust the pool": exhaust_pool,
    "exhaust PostgreSQL": exhaust_connections,
    "jump a clock": jump_clock,
}


class Breaking:
    """Deals the deck again and again, so that every fault has its turn before any has its second."""

    def __init__(self, fleet: Fleet, history: History, seed: int, names: tuple[str, ...]) -> None:
        self.broken: list[Broken] = []
        self.now = ""
        self.stopping = False
        self._fleet = fleet
        self._history = history
        self._chance = random.Random(f"{seed} faults")
        self.left_out = [] if fleet.has_small_disk else ["fill the disk"]
        self._names = [name for name in names if name not in self.left_out]

    async def run(self) -> None:
        begun = time.monotonic()
        while self._names and not self.stopping:
            deck = self._chance.sample(self._names, len(self._names))
            while deck and not self.stopping:
                await asyncio.sleep(self._chance.uniform(0.2, 1.5))
                names = [deck.pop()]
                if deck and self._chance.random() < TWO_AT_ONCE:
                    names.append(deck.pop())
                await self._break(names, time.monotonic() - begun)
        self.now = ""

    async def _break(self, names: list[str], at: float) -> None:
        self.now = " and ".join(names)
        results = await asyncio.gather(
            *(DECK[name](self._fleet, self._chance) for name in names), return_exceptions=True
        )
        for result in results:
            if isinstance(result, subprocess.TimeoutExpired):
                self._history.violated(f"asked to end, and did not within {result.timeout:g} s: {self.now}")
            # With PostgreSQL away a second fault may find nothing to break.
            elif isinstance(result, BaseException) and not isinstance(result, psycopg.OperationalError):
                raise result
        seconds = await recovered(self._fleet)
        if seconds is None:
            self._history.violated(f"not well {RECOVERY_SECONDS:g} s after: {self.now}")
        else:
            self.broken.append(Broken(self.now, at, seconds))


async def recovered(fleet: Fleet) -> float | None:
    """Seconds until everything works; None if it does not in time."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(RECOVERY_SECONDS):
            under_way = await _active(fleet)
            await asyncio.gather(*(_serves(fleet, api) for api in fleet.apis))
            while under_way.items() & (await _active(fleet)).items():
                await asyncio.sleep(0.1)
    except TimeoutError:
        return None
    return time.monotonic() - begun


async def _active(fleet: Fleet) -> dict[UUID, tuple[object, ...]]:
    """Runs under way, and how far they are."""
    while True:
        with suppress(psycopg.OperationalError):
            async with await fleet.connect() as connection:
                query = "SELECT id, attempt, steps, consumed_through FROM runs WHERE state = 'running'"
                rows = await (await connection.execute(query)).fetchall()
                return {row[0]: row[1:] for row in rows}
        await asyncio.sleep(0.05)


async def _serves(fleet: Fleet, api: Api) -> None:
    """Until it takes an input and the run of it is through."""
    headers = {"Authorization": f"Bearer {fleet.key}"}
    run_url = ""
    async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=2.0) as http:
        while True:
            with suppress(httpx.TransportError):
                if not run_url:
                    session = await http.post("/v1/sessions", json={"title": "a probe"})
                    if session.status_code == 201:
                        path = f"/v1/sessions/{session.json()['id']}/events"
                        run = await http.post(path, json={"type": "input", "text": "Well?"})
                        run_url = f"/v1/runs/{run.json()['run_id']}" if run.status_code == 200 else ""
                else:
                    state = (await http.get(run_url)).json().get("state")
                    if state == "succeeded":
                        return
                    run_url = "" if state == "failed" else run_url
            await asyncio.sleep(0.05)
