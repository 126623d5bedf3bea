"""`make bench`: measures this machine's Quarterdeck, prints a table, writes it with a plot to bench/results/."""

import os
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic

import uvloop
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import plot, running, serving
from bench.figures import Measured
from bench.report import RESULTS, table_of, write_json
from bench.stage import Advance, Stage, staged
from quarterdeck.db import embedded


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
    took_seconds = monotonic() - began
    write_json("latest", figures, took_seconds, load_before)
    title = f"Quarterdeck, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}: share of cases by time"
    (RESULTS / "latest.svg").write_text(plot.draw(samples_ms, running.TARGET_MS, title))
    console.print(table_of("Quarterdeck bench", figures))
    console.print(f"{took_seconds:.1f} s, load before {load_before:.2f}. Written to {RESULTS}: latest.json, latest.svg")


if __name__ == "__main__":
    main()
