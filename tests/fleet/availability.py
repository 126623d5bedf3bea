"""`make availability`: outages of the database and rolling restarts under load, compared with their targets."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bench.report import table_of, write_json
from rich.console import Console
from rich.markup import escape

from tests.fleet.fleet import FleetOptions, running_fleet
from tests.fleet.outage import Outage, OutageResult, measure_outage
from tests.fleet.rolling import RollingResult, measure_rolling_restarts

Result = OutageResult | RollingResult


async def measure(options: argparse.Namespace, folder: Path, console: Console) -> list[Result]:
    results: list[Result] = []
    if not options.rolling:
        (folder / "outages").mkdir()
        async with running_fleet(folder / "outages", FleetOptions()) as fleet:
            for number, kind in enumerate(options.outage or list(Outage)):
                console.print(f"The database is {kind} for {options.seconds:g} s …")
                results.append(await measure_outage(fleet, kind, options.seconds, number))
    if not options.outage:
        for as_qd_serve in (True, False):
            console.print(f"Rolling restarts, {options.rounds} rounds …")
            subfolder = folder / ("serve" if as_qd_serve else "separate")
            subfolder.mkdir()
            async with running_fleet(subfolder, FleetOptions(as_qd_serve=as_qd_serve)) as fleet:
                results.append(await measure_rolling_restarts(fleet, options.rounds, seed=0))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="make availability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each outage")
    parser.add_argument("--outage", type=Outage, choices=list(Outage), action="append", help="only this kind")
    parser.add_argument("--rounds", type=int, default=3, help="restarts of every process")
    parser.add_argument("--rolling", action="store_true", help="only rolling restarts")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="qd-available-") as folder:
        results = asyncio.run(measure(options, Path(folder), console))
    figures = [figure for result in results for figure in result.figures()]
    console.print(table_of("Quarterdeck availability", figures))
    for result in results:
        for violation in result.violations[:20]:
            console.print(f"[red]{escape(violation)}")
    measured = [{"measurement": type(result).__name__, **msgspec.to_builtins(result)} for result in results]
    path = write_json("availability", figures, time.monotonic() - began, load_before, measured=measured)
    console.print(f"Written to {path}")
    sys.exit(not all(figure.met is not False for figure in figures))


if __name__ == "__main__":
    main()
