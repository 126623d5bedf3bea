"""`make soak`: half of the load that this machine can handle, for half an hour. Memory and open files must stay flat.

The peak is measured first, by clients that act as fast as they are answered. Then the load is held by the clock: slow
answers do not reduce it. Ctrl-C ends the soak early and reports what was measured.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fleet.audited_load import AuditedLoad
from tests.fleet.fleet import Fleet, FleetOptions, running_fleet
from tests.fleet.history import History
from tests.fleet.load import Load
from tests.fleet.resources import POSTGRES, Sample, count_connections, database_mib, held_by
from tests.fleet.soak_report import SoakResult, report

# One API process with two children.
FLEET = FleetOptions(apis=1, workers=2, settings={"SERVER_PROCESSES": 2, "MODEL_DEMO_PAUSE_SECONDS": 0.005})
PEAK_CLIENTS = 32
SESSIONS = 30
SAMPLE_SECONDS = 5.0
# Not counted: caches fill and pools open. At least a minute, but at most half of a short soak.
WARM_UP_SHARE, WARM_UP_SECONDS = 0.2, 60.0
# With so many actions under way the load is not half of the peak any more.
MAX_IN_FLIGHT = 400


class Sampler:
    def __init__(self, fleet: Fleet, history: History) -> None:
        self.samples: list[Sample] = []
        self.in_flight: set[asyncio.Task[None]] = set()
        self._fleet = fleet
        self._history = history
        self._began = time.monotonic()

    async def run(self, show: Callable[[Sample], None]) -> None:
        while True:
            show(await self._take())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _take(self) -> Sample:
        held, pids = await asyncio.to_thread(held_by, self._fleet)
        sample = Sample(
            seconds=time.monotonic() - self._began,
            held=held,
            pids=pids,
            connections=await count_connections(self._fleet),
            database_mib=await database_mib(self._fleet),
            requests=len(self._history.attempts),
            in_flight=len(self.in_flight),
        )
        self.samples.append(sample)
        return sample


async def measure_peak(load: Load, seconds: float) -> float:
    """Actions a second."""
    began, count = time.monotonic(), 0

    async def act_repeatedly() -> None:
        nonlocal count
        rng = random.Random()
        while time.monotonic() < began + seconds:
            await load.act(rng)
            count += 1

    await asyncio.gather(*(act_repeatedly() for _ in range(PEAK_CLIENTS)))
    return count / (time.monotonic() - began)


async def hold(
    load: Load,
    sampler: Sampler,
    per_second: float,
    seconds: float,
    ended: asyncio.Event,
    show: Callable[[Sample], None],
) -> int:
    """Returns how many actions were skipped because too many were under way."""
    sampling = asyncio.create_task(sampler.run(show))
    rng = random.Random()
    began = time.monotonic()
    started = skipped = 0
    try:
        while not ended.is_set() and (elapsed := time.monotonic() - began) < seconds:
            assert not sampling.done(), sampling.exception()
            while started + skipped < elapsed * per_second:
                if len(sampler.in_flight) >= MAX_IN_FLIGHT:
                    skipped += 1
                    continue
                started += 1
                action = asyncio.create_task(load.act(rng))
                sampler.in_flight.add(action)
                action.add_done_callback(sampler.in_flight.discard)
            await asyncio.sleep(0.005)
        await asyncio.gather(*sampler.in_flight)
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    return skipped


async def soak(options: argparse.Namespace, folder: Path, console: Console) -> SoakResult:
    history = History()
    async with (
        running_fleet(folder, FLEET) as fleet,
        AuditedLoad(fleet, history, 0, clients=0, short_sessions=SESSIONS, audit_seconds=SAMPLE_SECONDS) as audited,
        _stop_signal() as ended,
    ):
        load = audited.load
        await measure_peak(load, options.peak_seconds / 4)
        peak = await measure_peak(load, options.peak_seconds)
        console.print(f"Peak: {peak:,.1f} actions a second with {PEAK_CLIENTS} clients. Holding {options.share:.0%}.")
        sampler = Sampler(fleet, history)
        began, requests_before = time.monotonic(), len(history.attempts)
        with _progress(options.minutes * 60, console) as show:
            skipped = await hold(load, sampler, options.share * peak, options.minutes * 60, ended, show)
        seconds = time.monotonic() - began
        console.print(f"{(len(history.attempts) - requests_before) / seconds:,.0f} requests a second.")
        await audited.finish()
    return SoakResult(
        peak_per_second=peak,
        held_per_second=options.share * peak,
        warm_up_seconds=_warm_up_seconds(sampler.samples[-1].seconds),
        samples=sampler.samples,
        skipped=skipped,
        violations=history.violations,
    )


def _warm_up_seconds(total_seconds: float) -> float:
    return min(max(WARM_UP_SHARE * total_seconds, WARM_UP_SECONDS), total_seconds / 2)


@asynccontextmanager
async def _stop_signal() -> AsyncIterator[asyncio.Event]:
    """Set by Ctrl-C or SIGTERM. The second signal ends the program at once."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        ended.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    yield ended


@contextmanager
def _progress(seconds: float, console: Console) -> Iterator[Callable[[Sample], None]]:
    columns = (TextColumn("soak"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=seconds)

        def show(sample: Sample) -> None:
            own_mib = sum(held.own_mib for name, held in sample.held.items() if name != POSTGRES)
            files = sum(held.files for held in sample.held.values())
            text = f"{own_mib:.0f} MiB, {files} files, {sample.connections} connections, {sample.in_flight} in flight"
            progress.update(bar, completed=min(seconds, sample.seconds), description=text)

        yield show


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--share", type=float, default=0.5, help="share of the peak")
    parser.add_argument("--peak-seconds", type=float, default=20.0, help="for which the peak is measured")
    options = parser.parse_args()
    # In a file, the table must not be folded to the width of a terminal.
    console = Console(width=None if sys.stdout.isatty() else 120)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="qd-soak-") as folder:
        result = uvloop.run(soak(options, Path(folder), console))
    sys.exit(not report(result, time.monotonic() - began, load_before, console))


if __name__ == "__main__":
    main()
