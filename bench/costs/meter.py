"""Processor time and memory of the API, the worker and PostgreSQL around one request, read from /proc."""

import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from msgspec import Struct

from bench.resources import forget_peak

_KIB_A_MIB = 1024


class Cost(Struct, frozen=True):
    cpu_seconds: float
    # Peak over idle. Of PostgreSQL: of the backend that grew most, without the buffers that all share.
    memory_mib: float


class Costs(Struct, frozen=True):
    api: Cost
    worker: Cost
    postgres: Cost


class Meter:
    """Between `start` and `costs`. The processes must be idle before."""

    def __init__(self, api: int, worker: int, postmaster: int) -> None:
        self._families = {"api": api, "worker": worker}
        self._postmaster = psutil.Process(postmaster)
        self._idle_mib: dict[str, float] = {}
        self._cpu_before: dict[str, float] = {}
        self._backends: dict[int, float] = {}

    def start(self, backends: Iterable[int]) -> None:
        """`backends`: process ids of the connections to PostgreSQL."""
        self._backends = {pid: _status_kib(pid, "RssAnon") / _KIB_A_MIB for pid in backends}
        for name, pid in self._families.items():
            forget_peak(pid)
            self._idle_mib[name] = _peak_mib(pid)
        for pid in self._backends:
            forget_peak(pid)
        self._cpu_before = self._cpu()

    def costs(self, backends: Iterable[int]) -> Costs:
        """`backends`: those of now. A new one counts from nothing."""
        self._backends |= {pid: 0.0 for pid in backends if pid not in self._backends}
        cpu = {name: after - self._cpu_before[name] for name, after in self._cpu().items()}
        memory = {name: _peak_mib(pid) - self._idle_mib[name] for name, pid in self._families.items()}
        memory["postgres"] = max((_own_peak_mib(pid) - idle for pid, idle in self._backends.items()), default=0.0)
        api, worker, postgres = (Cost(cpu[name], max(0.0, memory[name])) for name in ("api", "worker", "postgres"))
        return Costs(api, worker, postgres)

    def _cpu(self) -> dict[str, float]:
        """Of PostgreSQL: of the backends, and of the processes that have ended (parallel workers)."""
        cpu = {name: sum(map(_cpu_seconds, _family(pid))) for name, pid in self._families.items()}
        backends = [psutil.Process(pid) for pid in self._backends if psutil.pid_exists(pid)]
        ended = self._postmaster.cpu_times()
        cpu["postgres"] = sum(map(_cpu_seconds, backends)) + ended.children_user + ended.children_system
        return cpu


def until_idle(pids: Iterable[int], deadline_seconds: float = 20.0, look_seconds: float = 0.5) -> None:
    """Returns when these processes and their children use next to no processor time."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        before = sum(_cpu_seconds(process) for pid in pids for process in _family(pid))
        time.sleep(look_seconds)
        after = sum(_cpu_seconds(process) for pid in pids for process in _family(pid))
        if after - before <= 0.1 * look_seconds:
            return


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak_mib(pid: int) -> float:
    return sum(_status_kib(process.pid, "VmHWM") for process in _family(pid)) / _KIB_A_MIB


def _own_peak_mib(pid: int) -> float:
    """Pages of files and shared buffers are never given back, so the peak of the rest is at least the difference."""
    if not psutil.pid_exists(pid):
        return 0.0
    return (_status_kib(pid, "VmHWM") - _status_kib(pid, "RssFile") - _status_kib(pid, "RssShmem")) / _KIB_A_MIB


def _status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
