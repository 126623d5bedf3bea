"""`make bench`: measures this machine's Quarterdeck against its ceilings. The exit code tells whether everything could
be measured, and nothing about what was reached."""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import plot, ratios_plot
from bench.case import Case, Ground, find_cases
from bench.measuring import measure_all
from bench.outcome import Outcome
from bench.report import RESULTS, write_result
from bench.showing import plain, shown_reach, table_of
from quarterdeck.server import embedded_postgres


def main() -> None:
    options = _options()
    console = make_console()
    cases = {name: case for name, case in find_cases().items() if _is_meant(name, case, options.only)}
    if not cases:
        sys.exit(f"No case has {options.only!r} in its name or title.")
    if options.list:
        for name, case in cases.items():
            reach = shown_reach(case.reach, "×" if case.against else case.unit)
            console.print(name, case.title, case.against, reach, sep=" | ")
        return
    began, load_before = monotonic(), os.getloadavg()[0]
    outcomes = measured(console, cases, rounds=options.rounds)
    took_seconds = monotonic() - began
    console.print(table_of(outcomes))
    write_results(outcomes, took_seconds, load_before)
    console.print(f"{took_seconds:.0f} s, load before {load_before:.2f}. Written to {RESULTS}.")
    sys.exit(any(outcome.fault for outcome in outcomes))


def make_console() -> Console:
    """In a file or a pipe, which have no width, a table is not squeezed."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def measured(
    console: Console,
    cases: Mapping[str, Case[Any]],
    *,
    rounds: int | None = None,
    seconds: int | None = None,
    small: bool = False,
) -> list[Outcome]:
    """With a PostgreSQL of its own, in a folder that is gone afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="qd-bench-") as folder,
        embedded_postgres.running(Path(folder)) as url,
        Progress(*columns, console=console) as progress,
    ):
        totals = {name: case.warm_up + min(rounds or case.rounds, case.rounds) for name, case in cases.items()}
        bars = {name: progress.add_task(name, total=total) for name, total in totals.items()}
        ground = Ground(url, Path(folder), progress.console.print, small)
        return uvloop.run(
            measure_all(cases, ground, lambda name: progress.advance(bars[name]), rounds=rounds, seconds=seconds)
        )


def write_results(outcomes: list[Outcome], took_seconds: float, load_before: float) -> None:
    write_result("latest", took_seconds, load_before, cases=[plain(outcome) for outcome in outcomes])
    machine = f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}"
    ratios = ratios_plot.draw(outcomes, f"Quarterdeck against its ceilings ({machine})")
    (RESULTS / "ratios.svg").write_text(ratios)
    # The curve shows every share: which of them was the result does not matter here.
    samples_ms = {
        outcome.title.removesuffix(", median").removesuffix(", p99"): outcome.samples_ms
        for outcome in outcomes
        if outcome.samples_ms
    }
    if samples_ms:
        latencies = plot.draw(samples_ms, f"Quarterdeck: share of cases by time ({machine})")
        (RESULTS / "latencies.svg").write_text(latencies)


def _is_meant(name: str, case: Case[Any], only: str) -> bool:
    return only.lower() in name or only.lower() in case.title.lower()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="ARGS=… passes options on.")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases with these words in their name or title")
    parser.add_argument("--list", action="store_true", help="tell which cases there are, and measure nothing")
    parser.add_argument("--rounds", type=int, help="at most as many, and not those that each case asks for")
    return parser.parse_args()


if __name__ == "__main__":
    main()
