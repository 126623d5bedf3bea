"""Rolling restarts: every process is ended by SIGTERM and started again, one after another, while the load goes on.

Two arrangements: separate API and worker processes, and the children of `qd serve`.
"""

import asyncio
import signal
import time
from contextlib import suppress

import psutil
from bench.figures import Figure
from msgspec import Struct

from tests.fleet.audited_load import AuditedLoad
from tests.fleet.fleet import Fleet
from tests.fleet.history import History
from tests.workers import eventually
from tests.world import STOP_SECONDS

# Between two restarts: the load meets a complete fleet.
_PAUSE_SECONDS = 0.5
_CHILD_COMMANDS = ("api", "worker")


class RollingResult(Struct, frozen=True):
    arrangement: str
    restarts: int
    seconds: float
    # Every one of them carries an Idempotency-Key.
    changes: int
    unacknowledged: int
    requests: int
    # Attempts that met a restart and were repeated.
    failed_requests: int
    violations: list[str]

    def figures(self) -> list[Figure]:
        name = f"{self.arrangement}: {self.restarts} restarts"
        return [
            Figure(f"{name}, of {self.changes} changes not acknowledged", self.unacknowledged, "", 0),
            Figure(f"  … of {self.requests} requests failed and were repeated", self.failed_requests, ""),
            Figure("  … violations of the promises", len(self.violations), "", 0),
        ]


async def measure_rolling_restarts(fleet: Fleet, rounds: int, seed: int) -> RollingResult:
    history = History()
    began = time.monotonic()
    restarts = 0
    async with AuditedLoad(fleet, history, seed, always_keyed=True) as load:
        await asyncio.sleep(_PAUSE_SECONDS)
        for _ in range(rounds):
            restarts += await (_restart_children(fleet) if fleet.options.as_qd_serve else _restart_processes(fleet))
        await load.finish()
    return RollingResult(
        arrangement="qd serve" if fleet.options.as_qd_serve else "separate processes",
        restarts=restarts,
        seconds=time.monotonic() - began,
        changes=len(history.intents),
        unacknowledged=len(history.intents) - history.acknowledged(),
        requests=len(history.attempts),
        failed_requests=sum(attempt.is_failure for attempt in history.attempts),
        violations=history.violations,
    )


async def _restart_processes(fleet: Fleet) -> int:
    for process in fleet.processes:
        await process.drain_and_restart()
        await _wait_until_complete(fleet)
    return len(fleet.processes)


async def _restart_children(fleet: Fleet) -> int:
    children = await _children(fleet)
    for child in children:
        child.send_signal(signal.SIGTERM)
        await asyncio.to_thread(psutil.wait_procs, [child], STOP_SECONDS)
        assert not child.is_running(), f"{child} did not end"
        # The supervisor starts another one.
        await _children(fleet)
        await _wait_until_complete(fleet)
    return len(children)


async def _children(fleet: Fleet) -> list[psutil.Process]:
    """The API parent and the workers, once all of them run."""

    async def look() -> list[psutil.Process] | None:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(fleet.apis[0].pid).children()
            found = [child for child in children if child.cmdline()[-1:] and child.cmdline()[-1] in _CHILD_COMMANDS]
            return found if len(found) == 1 + fleet.options.workers else None
        return None

    found: list[psutil.Process] = await eventually(look)
    return found


async def _wait_until_complete(fleet: Fleet) -> None:
    """Every API process is ready and every worker is registered. A worker that ends removes itself from the list."""

    async def look() -> bool:
        return len(await fleet.fetch("SELECT FROM workers")) >= fleet.options.workers

    await fleet.wait_until_ready()
    await eventually(look)
    await asyncio.sleep(_PAUSE_SECONDS)
