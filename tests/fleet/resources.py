"""What the processes of a fleet hold (memory, open files, threads, connections), and how it changes over time.

Sources: /proc and pg_stat_activity."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil
from msgspec import Struct

from tests.fleet.fleet import Fleet

POSTGRES = "PostgreSQL, all"
_KIB = 1024


class Held(Struct, frozen=True):
    # Anonymous pages: no files, no shared buffers of PostgreSQL. Pages shared with the parent of a fork count in
    # full; otherwise writing to them would look like growth.
    own_mib: float
    resident_mib: float
    files: int
    threads: int


class Sample(Struct, frozen=True):
    # Since the beginning of the load.
    seconds: float
    held: dict[str, Held]
    pids: dict[str, int]
    connections: int
    database_mib: float
    requests: int
    in_flight: int


class Trend(Struct, frozen=True):
    """One quantity over the time after the warm-up."""

    first_quarter: float
    last_quarter: float
    # Slope of the fitted line.
    per_hour: float
    # Along the fitted line, from the first sample to the last.
    growth: float


async def count_connections(fleet: Fleet) -> int:
    return len(await fleet.backends())


async def database_mib(fleet: Fleet) -> float:
    ((size,),) = await fleet.fetch("SELECT pg_database_size(current_database())")
    return float(size) / 1024**2


def count_files(fleet: Fleet) -> dict[str, int]:
    """Open files of each process and its children."""
    return {process.name: sum(_sum([one]).files for one in process.family()) for process in fleet.processes}


def held_by(fleet: Fleet) -> tuple[dict[str, Held], dict[str, int]]:
    """What each process holds, and its process id."""
    families: dict[str, list[psutil.Process]] = {}
    for process in fleet.processes:
        first, *children = process.family() or [psutil.Process(process.pid)]
        families[f"{process.name}, parent" if children else process.name] = [first]
        families |= {f"{process.name}, process {at}": [child] for at, child in enumerate(children, 1)}
    with suppress(psutil.NoSuchProcess):
        postmaster = psutil.Process(fleet.postgres.pid)
        families[POSTGRES] = [postmaster, *postmaster.children(recursive=True)]
    held = {name: _sum(family) for name, family in families.items()}
    return held, {name: family[0].pid for name, family in families.items()}


def trend(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    quarter = max(1, len(values) // 4)
    mean_x, mean_y = sum(seconds) / len(seconds), sum(values) / len(values)
    spread = sum((x - mean_x) ** 2 for x in seconds)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(seconds, values, strict=True)) / spread if spread else 0.0
    return Trend(
        first_quarter=median(values[:quarter]),
        last_quarter=median(values[-quarter:]),
        per_hour=slope * 3600,
        growth=slope * (seconds[-1] - seconds[0]),
    )


def _sum(processes: Iterable[psutil.Process]) -> Held:
    own_kib = resident_kib = files = threads = 0
    for process in processes:
        # A process that has just ended holds nothing.
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            memory = _memory_kib(process.pid)
            files += process.num_fds()
            threads += process.num_threads()
            own_kib += memory["Anonymous"]
            resident_kib += memory["Rss"]
    return Held(own_kib / _KIB, resident_kib / _KIB, files, threads)


def _memory_kib(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.partition(":")[0]: int(line.split()[1]) for line in lines}
