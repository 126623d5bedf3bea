"""What the processes of a sandbox use, read from the /proc that they see themselves: it lists no others.

`pid` is process 1 of the sandbox, with its number outside. A process that ends meanwhile is left out.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct

_TEMPORARY = ("tmp", "dev/shm")
# Of the kernel, for a file without content.
_INODE_BYTES = 1024


class Usage(Struct, frozen=True):
    # With threads.
    processes: int
    memory_bytes: int


def usage(pid: int, max_memory_bytes: int) -> Usage:
    """Memory that several processes share is counted once for each, unless that exceeds the bound."""
    root = Path(f"/proc/{pid}/root")
    processes = 0
    memory = _temporary_bytes(root)
    found = list(_processes(root))
    for process in found:
        status = _fields(process / "status")
        processes += status.get("Threads", 0)
        memory += 1024 * (status.get("RssAnon", 0) + status.get("RssShmem", 0) + status.get("VmPTE", 0))
    if memory > max_memory_bytes:
        exact = (_fields(process / "smaps_rollup") for process in found)
        memory = _temporary_bytes(root) + 1024 * sum(
            fields.get("Pss_Anon", 0) + fields.get("Pss_Shmem", 0) for fields in exact
        )
    return Usage(processes, memory)


def deleted_bytes(pid: int, device: int) -> int:
    """Of files on a device that are deleted and still open."""
    found: dict[int, int] = {}
    for process in _processes(Path(f"/proc/{pid}/root")):
        with suppress(OSError):
            for name in os.listdir(process / "fd"):
                with suppress(OSError):
                    status = os.stat(process / "fd" / name)
                    if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                        found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _processes(root: Path) -> Iterator[Path]:
    try:
        for name in os.listdir(root / "proc"):
            if name.isdecimal():
                yield root / "proc" / name
    except PermissionError:
        # A root without CAP_SYS_PTRACE, as in containers. This reads the whole process table.
        with suppress(psutil.Error):
            first = psutil.Process(int(root.parent.name))
            for process in (first, *first.children(recursive=True)):
                yield Path(f"/proc/{process.pid}")
    except OSError:
        return


def _temporary_bytes(root: Path) -> int:
    total = 0
    for folder in _TEMPORARY:
        with suppress(OSError):
            found = os.statvfs(root / folder)
            total += (found.f_blocks - found.f_bfree) * found.f_frsize
            total += (found.f_files - found.f_ffree) * _INODE_BYTES
    return total


def _fields(file: Path) -> dict[str, int]:
    """Lines such as `RssAnon:  1234 kB`. Others are left out."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in file.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            number = value.split()[:1]
            if number and number[0].isdecimal():
                found[name] = int(number[0])
    return found
