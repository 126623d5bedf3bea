"""`make soak`: half of the load that this machine can bear, for half an hour. Memory and open files must stay flat.

The peak is measured first, by clients that go as fast as they are answered. Then the share is held by the clock: what
is slow does not make its own load lighter. Ctrl-C ends it early, with the figures of what there was.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import uvloop
from bench import timeline
from bench.figures import Figure
from bench.report import RESULTS, write_json
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fault.postgres import Postgres, own_postgres
from tests.uptime.availability import working_world
from tests.uptime.fleet import Fleet, sailing
from tests.uptime.outage import connections_of
from tests.uptime.sampling import POSTGRES, Sample, Trend, held_by, trend
from tests.uptime.workload import Workload
from tests.world import World

APIS, API_PROCESSES, WORKERS = 1, 2, 2
PEAK_CLIENTS = 32
SAMPLE_SECONDS = 5.0
# Caches fill, pools open, PostgreSQL's own catalogues are read: of a short soak at least the first minute, or half.
WARM_UP_SHARE, WARM_UP_SECONDS = 0.2, 60.0
# Who falls so far behind is not at half of the peak any more.
MOST_IN_FLIGHT = 400
# Along the fitted line, over the time that was measured: the more of the two. Open files count the clients that are
# connected at a moment.
FLAT_MIB, FLAT_MEMORY_SHARE = 3.0, 0.05
FLAT_FILES, FLAT_FILES_SHARE = 3.0, 0.1


class Soaked(Struct, frozen=True):
    peak_per_second: float
    held_per_second: float
    warm_up_seconds: float
    samples: list[Sample]
    done: dict[str, int]
    failures: dict[str, int]
    held_back: int


class Watch:
    """Takes samples by the clock, and shows what it sees."""

    def __init__(self, fleet: Fleet, postgres: Postgres, world: World, workload: Workload) -> None:
        self.samples: list[Sample] = []
        self.in_flight: set[asyncio.Task[None]] = set()
        self._fleet = fleet
        self._postgres_pid = postgres.pid
        self._world = world
        self._workload = workload
        self._began = time.monotonic()

    async def look(self) -> Sample:
        held, pids = await asyncio.to_thread(held_by, self._fleet, self._postgres_pid)
        sample = Sample(
            seconds=time.monotonic() - self._began,
            held=held,
            pids=pids,
            connections=await connections_of(self._world),
            database_mib=await _database_mib(self._world),
            requests=self._workload.requests,
            in_flight=len(self.in_flight),
        )
        self.samples.append(sample)
        return sample


async def peak_of(workload: Workload, seconds: float) -> float:
    """Actions a second."""
    until = time.monotonic() + seconds
    count = 0

    async def go_on() -> None:
        nonlocal count
        while time.monotonic() < until:
            await workload.act()
            count += 1

    began = time.monotonic()
    await asyncio.gather(*(go_on() for _ in range(PEAK_CLIENTS)))
    return count / (time.monotonic() - began)


async def hold(
    workload: Workload,
    watch: Watch,
    per_second: float,
    seconds: float,
    over: asyncio.Event,
    show: Callable[[Sample], None],
) -> int:
    """How many actions were not begun because too many were under way."""
    watching = asyncio.create_task(_keep_looking(watch, show))
    began = time.monotonic()
    begun = held_back = 0
    try:
        while not over.is_set() and (elapsed := time.monotonic() - began) < seconds:
            assert not watching.done(), watching.exception()
            while begun + held_back < elapsed * per_second:
                if len(watch.in_flight) >= MOST_IN_FLIGHT:
                    held_back += 1
                    continue
                begun += 1
                action = asyncio.create_task(workload.act())
                watch.in_flight.add(action)
                action.add_done_callback(watch.in_flight.discard)
            await asyncio.sleep(0.005)
        # Each ends by itself, in a minute at the latest.
        await asyncio.gather(*watch.in_flight)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return held_back


async def _keep_looking(watch: Watch, show: Callable[[Sample], None]) -> None:
    while True:
        show(await watch.look())
        await asyncio.sleep(SAMPLE_SECONDS)


async def _database_mib(world: World) -> float:
    ((size,),) = await world.fetch("SELECT pg_database_size(current_database())")
    return float(size) / 1024**2


async def soak(postgres: Postgres, folder: Path, asked: argparse.Namespace, console: Console) -> Soaked:
    settings = {"SERVER_PROCESSES": API_PROCESSES, "MODEL_DEMO_PAUSE_SECONDS": 0.005}
    with sailing(postgres.url, folder, apis=APIS, workers=WORKERS, **settings) as fleet:
        async with working_world(postgres.url, fleet.apis[0].url) as world, _ending() as over:
            workload = await Workload.prepare(world, [api.port for api in fleet.apis])
            await peak_of(workload, asked.peak_seconds / 4)
            peak = await peak_of(workload, asked.peak_seconds)
            console.print(f"Peak: {peak:,.1f} actions a second with {PEAK_CLIENTS} clients. Holding {asked.share:.0%}.")
            watch = Watch(fleet, postgres, world, workload)
            began, requests_before = time.monotonic(), workload.requests
            with _progress(asked.minutes * 60, console) as show:
                held_back = await hold(workload, watch, asked.share * peak, asked.minutes * 60, over, show)
            took = time.monotonic() - began
            workload.close()
            console.print(f"{(workload.requests - requests_before) / took:,.0f} requests a second.")
    return Soaked(
        peak_per_second=peak,
        held_per_second=asked.share * peak,
        warm_up_seconds=_warm_up_seconds(watch.samples[-1].seconds),
        samples=watch.samples,
        done=dict(workload.done),
        failures=dict(workload.failures),
        held_back=held_back,
    )


def _warm_up_seconds(whole_seconds: float) -> float:
    return min(max(WARM_UP_SHARE * whole_seconds, WARM_UP_SECONDS), whole_seconds / 2)


@asynccontextmanager
async def _ending() -> AsyncIterator[asyncio.Event]:
    """Set by Ctrl-C or SIGTERM. The second one ends at once."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def heard() -> None:
        over.set()
        for order in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(order)

    for order in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(order, heard)
    yield over


@contextmanager
def _progress(seconds: float, console: Console) -> Iterator[Callable[[Sample], None]]:
    columns = (TextColumn("soak"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=seconds)

        def show(sample: Sample) -> None:
            own_mib = sum(held.own_mib for name, held in sample.held.items() if name != POSTGRES)
            files = sum(held.files for held in sample.held.values())
            seen = f"{own_mib:.0f} MiB, {files} files, {sample.connections} connections, {sample.in_flight} in flight"
            progress.update(bar, completed=min(seconds, sample.seconds), description=seen)

        yield show


def trends_of(soaked: Soaked) -> dict[str, dict[str, Trend]]:
    """By process, then by quantity. Those that were not there all the time are left out, and counted as replaced."""
    settled = [sample for sample in soaked.samples if sample.seconds >= soaked.warm_up_seconds]
    seconds = [sample.seconds for sample in settled]
    names = set.intersection(*(set(sample.held) for sample in settled))
    return {
        name: {
            quantity: trend(seconds, [getattr(sample.held[name], quantity) for sample in settled])
            for quantity in msgspec.structs.asdict(settled[0].held[name])
        }
        for name in settled[0].held
        if name in names
    }


def figures_of(soaked: Soaked, trends: dict[str, dict[str, Trend]]) -> list[Figure]:
    figures = [
        Figure("peak", soaked.peak_per_second, "actions/s"),
        Figure("held", soaked.held_per_second, "actions/s"),
        Figure("actions that failed", sum(soaked.failures.values()), "", 0),
        Figure("actions that could not begin", soaked.held_back, "", 0),
        Figure("processes that were replaced", _replaced(soaked), "", 0),
    ]
    for name, by_quantity in trends.items():
        memory, files = by_quantity["own_mib"], by_quantity["files"]
        most_mib = max(FLAT_MIB, FLAT_MEMORY_SHARE * memory.first_quarter)
        most_files = max(FLAT_FILES, FLAT_FILES_SHARE * files.first_quarter)
        figures.append(Figure(f"{name}: growth of its memory", memory.growth, "MiB", most_mib))
        figures.append(Figure(f"{name}: growth of its open files", files.growth, "", most_files))
    return figures


def _replaced(soaked: Soaked) -> int:
    """Names tell places; the numbers of the processes tell who was in them."""
    first, last = soaked.samples[0].pids, soaked.samples[-1].pids
    return sum(last.get(name) != pid for name, pid in first.items())


def table_of(trends: dict[str, dict[str, Trend]], figures: list[Figure]) -> Table:
    table = Table(title="Quarterdeck soak: after the warm-up, first quarter → last quarter")
    for column in ("process", "own MiB", "MiB/h", "resident MiB", "open files", "files/h", "threads", "flat"):
        table.add_column(column, justify="left" if column == "process" else "right")
    met = {figure.name: figure.met for figure in figures}
    for name, of in trends.items():
        flat = met[f"{name}: growth of its memory"] and met[f"{name}: growth of its open files"]
        table.add_row(
            name,
            _span(of["own_mib"], 1),
            f"{of['own_mib'].per_hour:+.1f}",
            _span(of["resident_mib"], 1),
            _span(of["files"], 0),
            f"{of['files'].per_hour:+.1f}",
            _span(of["threads"], 0),
            "yes" if flat else "no",
            style="" if flat else "red",
        )
    return table


def _span(of: Trend, decimals: int) -> str:
    return f"{of.first_quarter:.{decimals}f} → {of.last_quarter:.{decimals}f}"


def picture_of(soaked: Soaked) -> str:
    names = [name for name in soaked.samples[-1].held if all(name in sample.held for sample in soaked.samples)]

    def lines(quantity: str) -> dict[str, list[float]]:
        """Ours: beside PostgreSQL's sum of many processes they would be lines at the bottom."""
        ours = [name for name in names if name != POSTGRES]
        return {name: [getattr(sample.held[name], quantity) for sample in soaked.samples] for name in ours}

    panels = {
        "own memory, MiB": lines("own_mib"),
        "open files": lines("files"),
        "PostgreSQL, MiB": {
            "own memory of its processes": [sample.held[POSTGRES].own_mib for sample in soaked.samples],
            "database (rows are kept)": [sample.database_mib for sample in soaked.samples],
        },
    }
    minutes = [sample.seconds / 60 for sample in soaked.samples]
    title = f"Quarterdeck soak, {soaked.held_per_second:.0f} actions a second, grey: warm-up"
    return timeline.draw(minutes, panels, soaked.warm_up_seconds / 60, title)


def report(soaked: Soaked, took_seconds: float, load_before: float, console: Console) -> bool:
    """Whether all is flat and nothing failed."""
    trends = trends_of(soaked)
    figures = figures_of(soaked, trends)
    console.print(table_of(trends, figures))
    first, last = soaked.samples[0], soaked.samples[-1]
    console.print(
        f"{last.seconds / 60:.1f} minutes, of which {soaked.warm_up_seconds / 60:.1f} are not counted. Database: "
        f"{first.database_mib:.0f} → {last.database_mib:.0f} MiB, as rows are kept. "
        f"Connections to it: {first.connections} → {last.connections}."
    )
    for figure in figures[2:5]:
        console.print(f"{figure.name}: {figure.value:g}")
    for failure, count in soaked.failures.items():
        console.print(f"[red]{count} × {escape(failure)}")
    path = write_json("soak", figures, took_seconds, load_before, trends=trends, soaked=msgspec.to_builtins(soaked))
    (RESULTS / "soak.svg").write_text(picture_of(soaked))
    console.print(f"Written to {path} and soak.svg")
    return all(figure.met is not False for figure in figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--share", type=float, default=0.5, help="of the peak")
    parser.add_argument("--peak-seconds", type=float, default=20.0, help="for which the peak is measured")
    asked = parser.parse_args()
    # Into a file, a table must not be folded to the width of a terminal that is not there.
    console = Console(width=None if sys.stdout.isatty() else 120)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with own_postgres("soak") as postgres:
        soaked = uvloop.run(soak(postgres, postgres.cluster.data_dir, asked, console))
    sys.exit(not report(soaked, time.monotonic() - began, load_before, console))


if __name__ == "__main__":
    main()
