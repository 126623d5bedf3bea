"""`make fault`: injects faults into a running Quarterdeck and checks every promise."""

import argparse
import asyncio
import secrets
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fleet.fault_run import FaultOptions, FaultRun, Report
from tests.fleet.faults import FAULTS
from tests.fleet.planted_bugs import BUGS


def parse_arguments(arguments: list[str]) -> tuple[FaultOptions, Path | None]:
    """The options, and the path of the report."""
    parser = argparse.ArgumentParser(prog="make fault", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults are injected (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="seed of an earlier run: the same faults and requests")
    parser.add_argument("--plant", choices=sorted(BUGS), help="a bug that must be caught")
    parser.add_argument("--faults", nargs="*", choices=sorted(FAULTS), default=list(FAULTS), help="inject only these")
    parser.add_argument("--json", type=Path, help="path of a JSON report")
    parsed = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if parsed.seed is None else parsed.seed
    options = FaultOptions(seconds=parsed.seconds, seed=seed, bug=parsed.plant, faults=tuple(parsed.faults))
    return options, parsed.json


def main() -> int:
    options, json_path = parse_arguments(sys.argv[1:])
    # Without this, SIGTERM would leave processes and a mounted disk behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="qd-fault-"))
    console.print(f"seed {options.seed}: repeat it with --seed {options.seed}. History and logs: {folder}")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    fault_run = FaultRun(options, folder)
    try:
        with Progress(*columns, console=console) as progress:
            report = asyncio.run(fault_run.run(progress))
    except KeyboardInterrupt:
        console.print(f"Stopped. Violations so far: {fault_run.history.violations[:20]}")
        return 130
    show(report, console)
    if json_path is not None:
        json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    if report.violations:
        console.print(f"The history and the logs of all processes are in {folder}.")
    else:
        shutil.rmtree(folder)
    return int(bool(report.violations))


def show(report: Report, console: Console) -> None:
    table = Table("fault", "times", "recovery, median", "worst")
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for fault in report.faults:
        seconds["two at once" if " and " in fault.name else fault.name].append(fault.recovery_seconds)
    for name, each in [*sorted(seconds.items()), ("all", [fault.recovery_seconds for fault in report.faults])]:
        if each:
            table.add_row(name, str(len(each)), f"{median(each):.2f} s", f"{max(each):.2f} s")
    console.print(table)
    outcomes = ", ".join(f"{name}: {count}" for name, count in report.outcomes.items())
    console.print(f"{report.seconds:.0f} s, {report.acknowledged} of {report.intents} changes acknowledged.")
    console.print(f"{report.answers} answers to actions acknowledged.")
    console.print(f"Requests: {outcomes}. Slowest: {report.slowest_seconds:.1f} s.")
    console.print(f"The database was checked {report.checks} times.")
    for left_out in report.left_out:
        console.print(f"Not injected, because it needs root: {left_out}.")
    for violation in report.violations[:20]:
        console.print(f"VIOLATION {violation}", style="red", markup=False)
    console.print(f"{len(report.violations)} violations")


if __name__ == "__main__":
    sys.exit(main())
