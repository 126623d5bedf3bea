"""What the processes of a server hold, by what Linux tells of them: memory, connections, unpacked files."""

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

# Only a fault takes this long.
PATIENCE_SECONDS = 30.0
# Given to a server, which kills those of its workers that do not end by themselves: longer than a test waits for that.
UNKILLED = {"SERVER_SHUTDOWN_SECONDS": 600}
# Of Linux's states of a socket.
_LISTENING = "0A"


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def stop(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(server.pid, number)


def is_gone(server: Server) -> bool:
    """It has ended and its port is closed; its parent is this process, so it stays as a zombie."""
    return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def resident_mib(server: Server) -> float:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _worker_pids(server)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1024**2


def connections(server: Server, *, stuck: bool = False) -> int:
    """Connections on the server's side, half-closed or not, by its open descriptors. Of those that are stuck, the other
    side does not take what is to be sent."""
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
    """Of each worker, by its process: how many it may have, and how many it may allow itself."""
    return {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in _worker_pids(server)}


@contextmanager
def without_descriptors(server: Server) -> Iterator[None]:
    """Meanwhile its workers can open nothing, as with too many connections."""
    before = descriptor_limits(server)
    try:
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, hard))
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def spooled(server: Server) -> int:
    """Uploads and unpacked files on the disk. They have no names: only the process that holds them knows."""
    return sum(bool(re.search(r"/spool/.*\(deleted\)$", link)) for link in _open_files(server))


def answered(server: Server, path: str) -> int:
    """Requests for this path that were let in and have ended, by the lines about them."""
    return server.log.read_text().count(f'"path":"{path}","status":200')


def _worker_pids(server: Server) -> list[int]:
    """The processes that serve: children of the one that was started."""
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def _open_files(server: Server) -> Iterator[str]:
    for pid in _worker_pids(server):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                yield os.readlink(descriptor)
            except FileNotFoundError:
                continue
