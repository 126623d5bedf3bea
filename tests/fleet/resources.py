"""What the processes of a fleet hold at one moment, by what Linux tells of them, and how that changed over time."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil
from msgspec import Struct

from tests.uptime.fleet import Fleet

POSTGRES = "PostgreSQL, all"
_KIB = 1024


class Held(Struct, frozen=True):
    # What was asked for, and no file and none of PostgreSQL's shared buffers. Pages that a process still shares with
    # the one that it was forked from count in full: otherwise writing to them would look like growth.
    own_mib: float
    resident_mib: float
    files: int
    threads: int


class Sample(Struct, frozen=True):
    # Since the load began.
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
    # Of the straight line that fits best.
    per_hour: float
    # Along that line, from the first sample to the last.
    growth: float


def held_by(fleet: Fleet, postgres_pid: int) -> tuple[dict[str, Held], dict[str, int]]:
    """What each holds, and its number."""
    families: dict[str, list[psutil.Process]] = {}
    for process in fleet.processes():
        first, *children = process.family() or [psutil.Process(process.pid)]
        families[f"{process.name}, parent" if children else process.name] = [first]
        families |= {f"{process.name}, process {at}": [child] for at, child in enumerate(children, 1)}
    with suppress(psutil.NoSuchProcess):
        postmaster = psutil.Process(postgres_pid)
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
        # One that has just ended is not there any more, and holds nothing.
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
