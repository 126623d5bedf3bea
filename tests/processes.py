"""What the processes of a server hold, read from /proc: memory, connections, open files."""

import asyncio
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.world import Server

# Only a failure takes this long.
PATIENCE_SECONDS = 120.0
# The server kills processes that do not end within this time: longer than a test waits.
UNKILLED = {"SERVER_SHUTDOWN_SECONDS": 600}
# State of a socket in /proc/net/tcp.
_LISTENING = "0A"


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def stop(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(server.pid, number)


def is_gone(server: Server) -> bool:
    """Whether it has ended. A child of this process stays a zombie; one of the fork server does not."""
    try:
        return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def resident_mib(server: Server) -> float:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in serving_pids(server)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1024**2


def peak_mib(pid: int) -> float:
    """The most memory that was ever resident in a process."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def connections(server: Server, *, stuck: bool = False) -> int:
    """Connections that the server has open, half-closed ones included. `stuck`: only those whose client does not read
    what is to be sent."""
    ours = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        unsent = int(fields[4].partition(":")[0], 16)
        if fields[1].endswith(f":{server.port:04X}") and fields[3] != _LISTENING and (unsent or not stuck):
            ours.add(f"socket:[{fields[9]}]")
    return sum(link in ours for link in _open_files(server))


def descriptors(server: Server) -> int:
    return len(list(_open_files(server)))


def descriptor_limits(server: Server) -> dict[int, tuple[int, int]]:
    """Soft and hard limit of each serving process, by its process id."""
    return {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in serving_pids(server)}


@contextmanager
def without_descriptors(server: Server) -> Iterator[None]:
    """Inside the block the server can open no files, as with too many connections."""
    before = descriptor_limits(server)
    try:
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, hard))
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def spooled(server: Server) -> int:
    """Number of temporary upload files. They are unlinked, so only open descriptors show them."""
    return sum(bool(re.search(r"/spool/.*\(deleted\)$", link)) for link in _open_files(server))


def answered(server: Server, path: str) -> int:
    """Requests for this path that have ended with 200, counted in the log."""
    return server.log.read_text().count(f'"path":"{path}","status":200')


def serving_pids(server: Server) -> list[int]:
    """The serving processes: children of the started one."""
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def _open_files(server: Server) -> Iterator[str]:
    for pid in serving_pids(server):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                yield os.readlink(descriptor)
            except FileNotFoundError:
                continue
