"""One run of the harness, from an empty database to a report."""

import asyncio
import time
from pathlib import Path

from msgspec import Struct
from rich.progress import Progress

from tests.harness.auditor import Auditor
from tests.harness.faults import DECK, Breaking, Broken
from tests.harness.fleet import launched
from tests.harness.history import History
from tests.harness.load import Load
from tests.harness.planted import BUGS


class Order(Struct, frozen=True, kw_only=True):
    seconds: float
    seed: int
    # A bug of `planted.py`. The run ends as soon as it is caught by what it must lead to.
    plant: str | None = None
    # Those to draw from.
    faults: tuple[str, ...] = tuple(DECK)


class Report(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float
    plant: str | None
    intents: int
    acknowledged: int
    answers: dict[str, int]
    slowest_seconds: float
    looks: int
    broken: list[Broken]
    left_out: list[str]
    violations: list[str]


class Proof:
    def __init__(self, order: Order, folder: Path) -> None:
        self.history = History()
        self._order = order
        self._folder = folder
        self.breaking: Breaking
        self.seconds = 0.0

    async def run(self, progress: Progress | None = None) -> Report:
        bug = None if self._order.plant is None else BUGS[self._order.plant]
        async with launched(self._folder, self._order.plant, bug) as fleet:
            load = Load(fleet, self.history, self._order.seed)
            auditor = Auditor(fleet, load, self.history)
            self.breaking = Breaking(fleet, self.history, self._order.seed, self._order.faults)
            try:
                await self._drive(load, auditor, progress)
            finally:
                await load.close()
                self.history.write(self._folder / "history.jsonl")
        return Report(
            seed=self._order.seed,
            seconds=self.seconds,
            plant=self._order.plant,
            intents=len(self.history.intents),
            acknowledged=self.history.acknowledged(),
            answers=dict(self.history.statuses.most_common()),
            slowest_seconds=self.history.slowest_seconds,
            looks=auditor.looks,
            broken=self.breaking.broken,
            left_out=self.breaking.left_out,
            violations=self.history.violations,
        )

    async def _drive(self, load: Load, auditor: Auditor, progress: Progress | None) -> None:
        driving = [asyncio.create_task(load.run()), asyncio.create_task(self.breaking.run())]
        auditing = asyncio.create_task(auditor.run())
        try:
            await self._wait([*driving, auditing], progress)
            load.stopping = self.breaking.stopping = True
            if not self._is_caught():
                await asyncio.gather(*driving)
                auditing.cancel()
                await asyncio.gather(auditing, return_exceptions=True)
                await auditor.settle()
        finally:
            for task in (*driving, auditing):
                task.cancel()
            await asyncio.gather(*driving, auditing, return_exceptions=True)

    async def _wait(self, tasks: list["asyncio.Task[None]"], progress: Progress | None) -> None:
        """For as long as was asked for, or until one of them fails."""
        begun = time.monotonic()
        bar = None if progress is None else progress.add_task("", total=self._order.seconds)
        while self.seconds < self._order.seconds and not self._is_caught():
            done, _ = await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            self.seconds = time.monotonic() - begun
            if progress is not None and bar is not None:
                progress.update(bar, completed=self.seconds, description=self._state())

    def _is_caught(self) -> bool:
        return self._order.plant is not None and BUGS[self._order.plant].is_shown_by(self.history.violations)

    def _state(self) -> str:
        counts = f"{len(self.breaking.broken)} faults, {sum(self.history.statuses.values())} answers"
        return f"{counts}, {len(self.history.violations)} violations: {self.breaking.now:<40}"
