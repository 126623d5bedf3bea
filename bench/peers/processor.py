"""Processor time of processes and of all that they started: what else a machine does hardly touches it."""

from collections.abc import Iterable, Iterator

import psutil


def seconds_of(pids: Iterable[int]) -> float:
    """So far. Who has ended since is counted by whoever waited for it, so two readings may be subtracted."""
    return sum(_seconds(process) for pid in pids for process in _family(pid))


def _family(pid: int) -> Iterator[psutil.Process]:
    process = psutil.Process(pid)
    yield process
    yield from process.children(recursive=True)


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
