"""Faults, and the injector that plays them one after another and sometimes two at once."""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import psycopg
from msgspec import Struct

from tests.fleet.fleet import LEASE_SECONDS, Fleet
from tests.fleet.history import History
from tests.fleet.recovery import RECOVERY_SECONDS, wait_for_recovery

# Share of the faults that are injected in pairs.
TWO_AT_ONCE = 0.2
Fault = Callable[[Fleet, random.Random], Awaitable[None]]


class InjectedFault(Struct, frozen=True):
    name: str
    # Since the beginning of the run.
    at_seconds: float
    # From the end of the fault. A killed process is started again at once.
    recovery_seconds: float


async def kill_api(fleet: Fleet, rng: random.Random) -> None:
    await rng.choice(fleet.apis).kill_and_restart()


async def kill_worker(fleet: Fleet, rng: random.Random) -> None:
    await rng.choice(fleet.workers).kill_and_restart()


async def drain_api(fleet: Fleet, rng: random.Random) -> None:
    await rng.choice(fleet.apis).drain_and_restart()


async def drain_worker(fleet: Fleet, rng: random.Random) -> None:
    await rng.choice(fleet.workers).drain_and_restart()


async def pause_api(fleet: Fleet, rng: random.Random) -> None:
    api = rng.choice(fleet.apis)
    api.signal(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(1.0, 4.0))
    api.signal(signal.SIGCONT)


async def pause_worker(fleet: Fleet, rng: random.Random) -> None:
    """For longer than its lease: when it wakes up, other workers have its runs."""
    worker = rng.choice(fleet.workers)
    worker.signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_SECONDS + rng.uniform(1.0, 3.0))
    worker.signal(signal.SIGCONT)


async def end_backend(fleet: Fleet, rng: random.Random) -> None:
    """End one connection, as an administrator does."""
    backends = await fleet.backends()
    if backends:
        async with fleet.connect() as connection:
            await connection.execute("SELECT pg_terminate_backend(%s)", (rng.choice(backends),))


async def kill_backend(fleet: Fleet, rng: random.Random) -> None:
    """PostgreSQL then ends all other connections and recovers from its log."""
    backends = await fleet.backends()
    if backends:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(backends), signal.SIGKILL)


async def restart_postgres(fleet: Fleet, rng: random.Random) -> None:
    await asyncio.to_thread(fleet.postgres.stop, signal.SIGINT)
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    await asyncio.to_thread(fleet.postgres.start)


async def crash_postgres(fleet: Fleet, rng: random.Random) -> None:
    await asyncio.to_thread(fleet.postgres.stop, signal.SIGQUIT)
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    await asyncio.to_thread(fleet.postgres.start)


async def slow_network(fleet: Fleet, rng: random.Random) -> None:
    fleet.proxy.set_delay(rng.uniform(0.02, 0.3))
    await asyncio.sleep(rng.uniform(1.0, 3.0))
    fleet.proxy.set_delay(0.0)


async def silent_network(fleet: Fleet, rng: random.Random) -> None:
    fleet.proxy.set_blocked(blocked=True)
    await asyncio.sleep(rng.uniform(1.0, 6.0))
    if rng.random() < 0.5:
        fleet.proxy.cut()
    fleet.proxy.set_blocked(blocked=False)


async def cut_network(fleet: Fleet, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        fleet.proxy.cut()
        await asyncio.sleep(rng.uniform(0.0, 0.3))


async def fill_disk(fleet: Fleet, rng: random.Random) -> None:
    filler = fleet.blobs / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    await asyncio.sleep(rng.uniform(1.0, 3.0))
    filler.unlink()


async def exhaust_pool(fleet: Fleet, rng: random.Random) -> None:
    """Make every connection of every pool wait for a table lock."""
    async with fleet.connect() as connection, connection.transaction():
        await connection.execute("LOCK TABLE api_keys, sessions IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(rng.uniform(1.0, 5.0))


async def exhaust_connections(fleet: Fleet, rng: random.Random) -> None:
    """Open connections until PostgreSQL refuses more, and end half of those of the fleet."""
    backends = await fleet.backends()
    async with fleet.connect() as first, AsyncExitStack() as others:
        with suppress(psycopg.OperationalError):
            while True:
                await others.enter_async_context(fleet.connect())
        for pid in rng.sample(backends, len(backends) // 2):
            await first.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with suppress(psycopg.OperationalError):
                await others.enter_async_context(fleet.connect())
        await asyncio.sleep(rng.uniform(1.0, 3.0))


async def jump_clock(fleet: Fleet, rng: random.Random) -> None:
    """Move the clock of one process by up to two hours in either direction, for a while."""
    process = rng.choice(fleet.processes)
    process.clock.set(rng.uniform(-7200.0, 7200.0))
    await asyncio.sleep(rng.uniform(1.0, 3.0))
    process.clock.set(0.0)


FAULTS: dict[str, Fault] = {
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
    "slow network": slow_network,
    "silent network": silent_network,
    "cut network": cut_network,
    "fill the disk": fill_disk,
    "exhaust the pool": exhaust_pool,
    "exhaust PostgreSQL": exhaust_connections,
    "jump a clock": jump_clock,
}


class FaultInjector:
    """Shuffles the faults and plays all of them before any is played again."""

    def __init__(self, fleet: Fleet, history: History, seed: int, names: tuple[str, ...]) -> None:
        self.injected: list[InjectedFault] = []
        # Name of the fault under way, for the progress line.
        self.current = ""
        self.stopping = False
        self._fleet = fleet
        self._history = history
        self._rng = random.Random(f"{seed} faults")
        self.left_out = [] if fleet.has_small_disk else ["fill the disk"]
        self._names = [name for name in names if name not in self.left_out]

    async def run(self) -> None:
        began = time.monotonic()
        while self._names and not self.stopping:
            remaining = self._rng.sample(self._names, len(self._names))
            while remaining and not self.stopping:
                await asyncio.sleep(self._rng.uniform(0.2, 1.5))
                names = [remaining.pop()]
                if remaining and self._rng.random() < TWO_AT_ONCE:
                    names.append(remaining.pop())
                await self._inject(names, time.monotonic() - began)
        self.current = ""

    async def _inject(self, names: list[str], at_seconds: float) -> None:
        self.current = " and ".join(names)
        faults = (FAULTS[name](self._fleet, self._rng) for name in names)
        for result in await asyncio.gather(*faults, return_exceptions=True):
            if isinstance(result, subprocess.TimeoutExpired):
                text = f"a process did not end within {result.timeout:g} s of SIGTERM: {self.current}"
                self._history.add_violation(text)
            # While PostgreSQL is away, a second fault may have no connection to break.
            elif isinstance(result, BaseException) and not isinstance(result, psycopg.OperationalError):
                raise result
        seconds = await wait_for_recovery(self._fleet)
        if seconds is None:
            self._history.add_violation(f"not recovered {RECOVERY_SECONDS:g} s after: {self.current}")
        else:
            self.injected.append(InjectedFault(self.current, at_seconds, seconds))
