"""`make fault`: breaks a running Quarterdeck for a while and says whether it kept its promises."""

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

from tests.harness.faults import DECK
from tests.harness.planted import BUGS
from tests.harness.proof import Order, Proof, Report


def read(arguments: list[str]) -> tuple[Order, Path | None]:
    """What to do, and where to write the report."""
    parser = argparse.ArgumentParser(prog="make fault", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things are broken (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run: the same faults and requests")
    parser.add_argument("--plant", choices=sorted(BUGS), help="a bug that must be caught")
    parser.add_argument("--faults", nargs="*", choices=sorted(DECK), default=list(DECK), help="only these")
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    return Order(seconds=given.seconds, seed=seed, plant=given.plant, faults=tuple(given.faults)), given.json


def main() -> int:
    order, json = read(sys.argv[1:])
    # Whoever ends it otherwise would leave processes and a disk behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="qd-fault-"))
    console.print(f"seed {order.seed}: repeat it with --seed {order.seed}. History and logs: {folder}")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    proof = Proof(order, folder)
    try:
        with Progress(*columns, console=console) as progress:
            report = asyncio.run(proof.run(progress))
    except KeyboardInterrupt:
        console.print(f"Stopped. Violations until then: {proof.history.violations[:20]}")
        return 130
    show(report, console)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    if report.violations:
        console.print(f"The history and the logs of all processes are in {folder}.")
    else:
        shutil.rmtree(folder)
    return int(bool(report.violations))


def show(report: Report, console: Console) -> None:
    table = Table("fault", "times", "well again after, median", "worst")
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for one in report.broken:
        seconds["two at once" if " and " in one.what else one.what].append(one.recovery_seconds)
    for what, each in sorted(seconds.items()):
        table.add_row(what, str(len(each)), f"{median(each):.2f} s", f"{max(each):.2f} s")
    if every := [one.recovery_seconds for one in report.broken]:
        table.add_section()
        table.add_row("all", str(len(every)), f"{median(every):.2f} s", f"{max(every):.2f} s")
    console.print(table)
    answers = ", ".join(f"{name}: {count}" for name, count in report.answers.items())
    console.print(f"{report.seconds:.0f} s, {report.acknowledged} of {report.intents} changes acknowledged, the rest")
    console.print(f"given up with their outcome unknown. Answers: {answers}.")
    console.print(f"The slowest took {report.slowest_seconds:.1f} s. The database was looked at {report.looks} times.")
    for left_out in report.left_out:
        console.print(f"Left out, since it needs root: {left_out}.")
    for violation in report.violations[:20]:
        console.print(f"VIOLATION {violation}", style="red", markup=False)
    console.print(f"{len(report.violations)} violations")


if __name__ == "__main__":
    sys.exit(main())
