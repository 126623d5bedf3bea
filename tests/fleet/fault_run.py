"""One fault run, from an empty database to a report."""

import asyncio
import time
from pathlib import Path

from msgspec import Struct
from rich.progress import Progress

from tests.fleet.audited_load import AuditedLoad
from tests.fleet.faults import FAULTS, FaultInjector, InjectedFault
from tests.fleet.fleet import SHORT_LEASE, FleetOptions, running_fleet
from tests.fleet.history import History
from tests.fleet.planted_bugs import BUGS


class FaultOptions(Struct, frozen=True, kw_only=True):
    seconds: float
    seed: int
    # A name in `BUGS`. The run ends as soon as the bug is caught.
    bug: str | None = None
    # Names of the faults to inject.
    faults: tuple[str, ...] = tuple(FAULTS)


class Report(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float
    bug: str | None
    intents: int
    acknowledged: int
    # Answers to actions that were acknowledged.
    answers: int
    outcomes: dict[str, int]
    slowest_seconds: float
    checks: int
    faults: list[InjectedFault]
    left_out: list[str]
    violations: list[str]


class FaultRun:
    def __init__(self, options: FaultOptions, folder: Path) -> None:
        self.history = History()
        self._options = options
        self._folder = folder
        self._injector: FaultInjector
        self._seconds = 0.0

    async def run(self, progress: Progress | None = None) -> Report:
        # With fewer workers a paused or killed one has more of the runs, so that a planted bug shows sooner.
        workers = 3 if self._options.bug is None else 2
        options = FleetOptions(
            workers=workers, bug=self._options.bug, settings=dict(SHORT_LEASE), delay_commits=True, with_small_disk=True
        )
        async with running_fleet(self._folder, options) as fleet:
            self._injector = FaultInjector(fleet, self.history, self._options.seed, self._options.faults)
            try:
                async with AuditedLoad(fleet, self.history, self._options.seed) as load:
                    await self._drive(load, progress)
            finally:
                self.history.write(self._folder / "history.jsonl")
        return Report(
            seed=self._options.seed,
            seconds=self._seconds,
            bug=self._options.bug,
            intents=len(self.history.intents),
            acknowledged=self.history.acknowledged(),
            answers=self.history.acknowledged_answers(),
            outcomes=self.history.outcomes(),
            slowest_seconds=self.history.slowest_seconds(),
            checks=load.auditor.checks,
            faults=self._injector.injected,
            left_out=self._injector.left_out,
            violations=self.history.violations,
        )

    async def _drive(self, load: AuditedLoad, progress: Progress | None) -> None:
        injecting = asyncio.create_task(self._injector.run())
        try:
            await self._wait([*load.tasks, injecting], progress)
            self._injector.stopping = True
            if not self._is_caught():
                await injecting
                await load.finish()
        finally:
            injecting.cancel()
            await asyncio.gather(injecting, return_exceptions=True)

    async def _wait(self, tasks: list["asyncio.Task[None]"], progress: Progress | None) -> None:
        """Until the time is over, the bug is caught, or a task fails."""
        began = time.monotonic()
        bar = None if progress is None else progress.add_task("", total=self._options.seconds)
        while self._seconds < self._options.seconds and not self._is_caught():
            done, _ = await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            self._seconds = time.monotonic() - began
            if progress is not None and bar is not None:
                progress.update(bar, completed=self._seconds, description=self._status())

    def _is_caught(self) -> bool:
        return self._options.bug is not None and BUGS[self._options.bug].is_caught(self.history.violations)

    def _status(self) -> str:
        counts = f"{len(self._injector.injected)} faults, {len(self.history.attempts)} requests"
        return f"{counts}, {len(self.history.violations)} violations: {self._injector.current:<40}"
