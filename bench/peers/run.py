"""`make bench-peers`: installs the systems, measures them in turns with Quarterdeck, tries what each promises."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter

import psutil
import psycopg
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.peers import environments, load, processor, properties, report
from bench.peers.model import Model, standing_in
from bench.peers.outcome import Outcome, Round
from bench.peers.system import Installation, System
from bench.peers.systems import SYSTEMS
from bench.peers.verdicts import Finding
from quarterdeck.server import embedded_postgres

CONNECTIONS = 64
SESSIONS = 500
_WARM_UP_SECONDS = 1.0
_ALONE_SECONDS = 4.0
# After which what was accepted is executed, as far as it goes.
_WORKING_OFF_SECONDS = 1.0
_COMMITS = 50
# wrk does not count what is under way when the time is over: at most CONNECTIONS turns, fewer than 10 a second.
_CROWDED_SECONDS = 8.0
# The second line is for Quarterdeck's demo model, which would call a tool before it answers. The others only answer.
_TEXT = "Please look at the release notes and tell me what is missing.\ndemo: steps 0"
_PROPERTIES: dict[str, Callable[[System, Model], Awaitable[Finding]]] = {
    "one run a session at a time": properties.runs_one_at_a_time,
    "a key used again with another turn is refused": properties.keys_are_honest,
    "kept every turn: busy sessions": properties.kept_when_busy,
    "kept every turn: killed with -9": properties.kept_when_killed,
}


class Comparison:
    def __init__(self, postgres_url: str, folder: Path, progress: Progress) -> None:
        self._postgres_url = postgres_url
        self._folder = folder
        self._progress = progress
        self._installed: dict[type[System], Path] = {}
        self.outcomes: dict[type[System], Outcome] = {}

    async def measure(self, systems: Sequence[type[System]], rounds: int) -> None:
        await self._each("installing", systems, self._install)
        for number in range(rounds):
            # Nobody is always the first, or always behind the same other.
            order = [*systems[number % len(systems) :], *systems[: number % len(systems)]]
            await self._each(f"round {number + 1} of {rounds}", order, self._round)
        await self._each("properties", systems, self._properties)

    async def _each(
        self, title: str, systems: Sequence[type[System]], step: Callable[[type[System]], Awaitable[None]]
    ) -> None:
        bar = self._progress.add_task(title, total=len(systems))
        for system in systems:
            self._progress.update(bar, description=f"{title}: {system.name}")
            if not self._progress.console.is_terminal:
                # Where no bar can move, a line tells where it is.
                self._progress.console.print(f"{title}: {system.name}")
            if system not in self.outcomes or self.outcomes[system].failure is None:
                try:
                    await step(system)
                except Exception as fault:
                    # One that breaks is a line in the report, not the end of the comparison.
                    self.outcomes[system].failure = f"{title}: {type(fault).__name__}: {fault}"
            self._progress.advance(bar)
        self._progress.update(bar, description=title)

    async def _install(self, system: type[System]) -> None:
        version = environments.version_of(system.environment) if system.environment else metadata.version("quarterdeck")
        self.outcomes[system] = Outcome(
            system.name, version, system.request, system.setting, system.differs, rounds=[], findings={}
        )
        if system.environment:
            self._installed[system] = await environments.install(system.environment)

    async def _round(self, system: type[System]) -> None:
        """Alone first: what a crowd leaves behind would keep the system busy."""
        installation = self._installation(system, None)
        async with system(installation) as running:
            requests = [running.turn(session, _TEXT) for session in await running.new_sessions(SESSIONS)]

            async def loaded(connections: int, seconds: float) -> load.Load:
                return await load.load(running.port, requests, connections, seconds, installation.folder)

            await loaded(4, _WARM_UP_SECONDS)
            await asyncio.sleep(_WORKING_OFF_SECONDS)
            bare_commit_ms = _bare_commit_ms(self._postgres_url)
            before = self._processor_seconds(running)
            alone = await loaded(1, _ALONE_SECONDS)
            await asyncio.sleep(_WORKING_OFF_SECONDS)
            processor_ms = 1000 * (self._processor_seconds(running) - before) / max(alone.accepted, 1)
            crowded = await loaded(CONNECTIONS, _CROWDED_SECONDS)
            self.outcomes[system].rounds.append(Round(alone, crowded, processor_ms, bare_commit_ms))

    def _processor_seconds(self, system: System) -> float:
        with psycopg.connect(self._postgres_url) as connection:
            postmaster = psutil.Process(connection.info.backend_pid).ppid()
        return processor.seconds_of([*system.pids, postmaster])

    async def _properties(self, system: type[System]) -> None:
        async with standing_in() as model, system(self._installation(system, model.address)) as running:
            for name, tried in _PROPERTIES.items():
                self.outcomes[system].findings[name] = await tried(running, model)

    def _installation(self, system: type[System], model: str | None) -> Installation:
        with psycopg.connect(self._postgres_url, autocommit=True) as connection:
            # What the one before has written must not be brought to the disk in the time of this one.
            connection.execute("CHECKPOINT")
        folder = Path(tempfile.mkdtemp(prefix=f"{system.__name__.lower()}-", dir=self._folder))
        return Installation(folder, self._postgres_url, self._installed.get(system, folder), model)


def _bare_commit_ms(postgres_url: str) -> float:
    took_ms: list[float] = []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS weather (number integer)")
        for _ in range(_COMMITS):
            began = perf_counter()
            connection.execute("INSERT INTO weather VALUES (1)")
            took_ms.append((perf_counter() - began) * 1000)
    return median(took_ms)


def main() -> None:
    options = _options()
    chosen = [system for system in SYSTEMS if options.only is None or system.__name__.lower() in options.only]
    load.wrk()
    # Eighty columns, which a pipe is taken for, would cut the tables short.
    console = Console(width=None if sys.stdout.isatty() else 160)
    began, load_before = monotonic(), os.getloadavg()[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="qd-peers-") as folder,
        embedded_postgres.running(Path(folder) / "postgres") as url,
        Progress(*columns, console=console) as progress,
    ):
        comparison = Comparison(url, Path(folder), progress)
        uvloop.run(comparison.measure(chosen, options.rounds))
    outcomes = list(comparison.outcomes.values())
    report.write(outcomes, monotonic() - began, load_before)
    for table in report.tables(outcomes):
        console.print(table)
    console.print(f"Took {monotonic() - began:.0f} s. Written to {report.RESULTS}: peers.json, peers.svg")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="starts of each system, in turns")
    names = ", ".join(system.__name__.lower() for system in SYSTEMS)
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of {names}, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
