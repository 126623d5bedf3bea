"""`make bench`: measures this machine's Quarterdeck, prints a table, writes it with a plot to bench/results/."""

import os
import platform
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import uvloop
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import plot, running, serving
from bench.figures import Figure, Measured
from bench.stage import Advance, Stage, staged
from quarterdeck.db import embedded

RESULTS = Path(__file__).parent / "results"


class Measurement(Struct, frozen=True):
    name: str
    parts: int
    measure: Callable[[Stage, Advance], Awaitable[Measured]]


# Those of one line share a database. What the first leaves behind would keep a worker busy.
PLAN = (
    (
        Measurement("throughput", serving.ROUNDS, serving.throughput),
        Measurement("reading along", serving.READ_ALONG_SAMPLES, serving.reading_along),
    ),
    (
        Measurement("starting", running.STARTS, running.starting),
        Measurement("steering", running.STEERS, running.steering),
    ),
    (
        Measurement("many at once", running.AT_ONCE, running.many_at_once),
        Measurement("many over HTTP", running.AT_ONCE, running.many_at_a_provider),
    ),
)


async def measure_all(postgres_url: str, folder: Path, progress: Progress) -> list[Measured]:
    measured: list[Measured] = []
    bars = {one.name: progress.add_task(one.name, total=one.parts) for line in PLAN for one in line}
    for line in PLAN:
        async with staged(postgres_url, folder) as stage:
            for one in line:
                measured.append(await one.measure(stage, partial(progress.advance, bars[one.name])))
    return measured


def table_of(figures: list[Figure]) -> Table:
    table = Table(title="Quarterdeck bench")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("target", justify="right")
    for figure in figures:
        decimals = 0 if figure.value >= 1000 else 2 if figure.value < 10 else 1
        value = f"{figure.value:,.{decimals}f} {figure.unit}"
        target = "" if figure.target is None else f"≤ {figure.target:g} {figure.unit}"
        colour = {None: "", True: "green", False: "red"}[figure.met]
        table.add_row(figure.name, value, target, style=colour)
    return table


def machine(load_before: float) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        # Of the minute before: what else the machine was doing.
        "load_before": round(load_before, 2),
    }


def main() -> None:
    console = Console()
    began, load_before = monotonic(), os.getloadavg()[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="qd-bench-") as folder,
        embedded.running(Path(folder)) as url,
        Progress(*columns, console=console) as progress,
    ):
        measured = uvloop.run(measure_all(url, Path(folder), progress))
    figures = [figure for each in measured for figure in each.figures]
    samples_ms = {name: values for each in measured for name, values in each.samples_ms.items()}
    result = {
        "taken_at": datetime.now(UTC),
        "took_seconds": round(monotonic() - began, 1),
        "machine": machine(load_before),
        "figures": [{**msgspec.to_builtins(figure), "met": figure.met} for figure in figures],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    title = f"Quarterdeck, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}: share of cases by time"
    (RESULTS / "latest.svg").write_text(plot.draw(samples_ms, running.TARGET_MS, title))
    console.print(table_of(figures))
    console.print(
        f"{result['took_seconds']} s, load before {load_before:.2f}. Written to {RESULTS}: latest.json, latest.svg"
    )


if __name__ == "__main__":
    main()
