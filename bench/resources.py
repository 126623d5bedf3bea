"""Memory and processor time of a process and those it has started."""

from pathlib import Path

import psutil

MIB = 1024 * 1024
_PEAK = "VmHWM:"


def resident_mib(process_id: int) -> float:
    return sum(process.memory_info().rss for process in _family(process_id)) / MIB


def forget_peak(process_id: int) -> None:
    """From here on the peak is that of what comes. The kernel keeps it, so that no moment is missed."""
    for process in _family(process_id):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_mib(process_id: int) -> float:
    return sum(_peak_kib(process) for process in _family(process_id)) / 1024


def cpu_seconds(process_id: int) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family(process_id))


def _family(process_id: int) -> list[psutil.Process]:
    parent = psutil.Process(process_id)
    return [parent, *parent.children(recursive=True)]


def _peak_kib(process: psutil.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(_PEAK))
