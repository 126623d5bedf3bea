"""`make simulation`: a deployment on nine hosts in network namespaces. Hosts are cut off and lost, the database fails
over to its replica, and every promise is checked. Then failovers under full load, with and without synchronous
replication, and what a session and a turn cost on each kind of host."""

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bench.figures import Figure
from bench.report import table_of, write_json
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fleet.recovery import RECOVERY_SECONDS
from tests.simulation.capacity import CapacityResult, measure_capacity
from tests.simulation.failover import FailoverResult, Mode, measure_failover
from tests.simulation.network import run_isolated, why_not
from tests.simulation.scenario import Scenario, ScenarioReport

EXIT_IMPOSSIBLE = 2
MODES = {mode.name.lower(): mode for mode in Mode}
PARTS = ["scenario", *MODES, "capacity"]


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulation", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(1_000_000), help="of an earlier run: same requests"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; can be repeated")
    parser.add_argument("--json", type=Path, help="path of the JSON report (default: bench/results/simulation.json)")
    parser.add_argument("--keep", action="store_true", help="keep the history and the logs of all hosts")
    return parser.parse_args(arguments)


class Simulation:
    def __init__(self, options: argparse.Namespace, folder: Path, progress: Progress) -> None:
        self.scenario: ScenarioReport | None = None
        self.failovers: list[FailoverResult] = []
        self.capacity: CapacityResult | None = None
        self._options = options
        self._folder = folder
        self._progress = progress
        self._task = progress.add_task("")

    async def run(self) -> None:
        for part in self._options.only or PARTS:
            folder = self._folder / part
            folder.mkdir(mode=0o711)
            if part == "scenario":
                self.scenario = await Scenario(folder, self._options.seed, self._show).run()
            elif part == "capacity":
                self.capacity = await measure_capacity(folder, self._show)
            else:
                self.failovers.append(await measure_failover(folder, MODES[part], self._show))

    def _show(self, step: str) -> None:
        self._progress.update(self._task, description=step)
        if not self._progress.console.is_terminal:
            self._progress.console.print(step)


def main() -> int:
    console = Console(width=None if sys.stdout.isatty() else 120)
    options = parse_arguments(sys.argv[1:])
    if (reason := why_not()) is not None:
        console.print(f"Not possible here: {reason}.")
        return EXIT_IMPOSSIBLE
    run_isolated("tests.simulation.command")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="qd-simulation-"))
    # PostgreSQL's account and the user of the sandbox must be able to enter it.
    folder.chmod(0o711)
    console.print(f"seed {options.seed}. History and logs: {folder}")
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    is_kept = options.keep
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            simulation = Simulation(options, folder, progress)
            asyncio.run(simulation.run())
    except KeyboardInterrupt:
        return 130
    except BaseException:
        is_kept = True
        raise
    else:
        figures = report(simulation, console)
        if options.json is not None:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(_details(simulation))))
        else:
            path = write_json("simulation", figures, time.monotonic() - began, load_before, **_details(simulation))
            console.print(f"Written to {path}")
        is_met = all(figure.met is not False for figure in figures)
        is_kept = is_kept or not is_met
        return int(not is_met)
    finally:
        if is_kept:
            console.print(f"The history and the logs of all hosts are in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def report(simulation: Simulation, console: Console) -> list[Figure]:
    figures: list[Figure] = []
    if simulation.scenario is not None:
        show_scenario(simulation.scenario, console)
        figures.append(Figure("violations of the promises", len(simulation.scenario.violations), "", 0))
    for failover in simulation.failovers:
        figures += failover.figures()
    if simulation.capacity is not None:
        figures += simulation.capacity.figures()
    console.print(table_of("Quarterdeck simulation", figures))
    return figures


def show_scenario(found: ScenarioReport, console: Console) -> None:
    table = Table("step", "others serve, runs go on", "full service afterwards")
    for step in found.steps:
        table.add_row(escape(step.name), _seconds(step.meanwhile_seconds), _seconds(step.after_seconds))
    console.print(table)
    outcomes = ", ".join(f"{name}: {count}" for name, count in found.outcomes.items())
    console.print(f"{found.seconds:.0f} s, {found.acknowledged} of {found.intents} changes acknowledged.")
    console.print(f"{found.answers} answers to actions acknowledged. The database was checked {found.checks} times.")
    console.print(f"Requests: {outcomes}. Slowest answer: {found.slowest_answer_seconds:.1f} s.")
    for violation in found.violations[:20]:
        console.print(f"VIOLATION {violation}", style="red", markup=False)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _details(simulation: Simulation) -> dict[str, object]:
    return {
        "recovery_limit_seconds": RECOVERY_SECONDS,
        "scenario": msgspec.to_builtins(simulation.scenario),
        "failovers": msgspec.to_builtins(simulation.failovers),
        "capacity": msgspec.to_builtins(simulation.capacity),
    }


if __name__ == "__main__":
    sys.exit(main())
