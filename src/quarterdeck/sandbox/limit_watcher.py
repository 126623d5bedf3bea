"""Watches a running command for bounds that the kernel does not keep, or does not report. Ends with the reason to stop
the command.

Looks are taken in threads. The pauses between them grow with their cost, so that a command cannot keep the worker busy.
"""

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from quarterdeck.core.logging import log
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import Command, CommandOutcome, Service
from quarterdeck.sandbox.limits import OWN_PROCESSES, Cgroup

# What the processes of a sandbox use, read from the /proc that they see themselves: it lists no others.
#
# `pid` is process 1 of the sandbox, with its number outside. A process that ends meanwhile is left out.

_TEMPORARY = ("tmp", "dev/shm")
# What the kernel needs for a file without content.
_INODE_BYTES = 1024


def usage(pid: int, max_memory_bytes: int) -> tuple[int, int]:
    """The number of processes and threads, and the bytes of memory. Memory that several processes share is counted once
    for each, unless that exceeds the bound."""
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
    return processes, memory


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


# The size of a folder that hostile processes change at the same time. Links are not followed.

# Each level takes two descriptors while the folder is read.
MAX_DEPTH = 100


class _TooLarge(Exception):
    """The text says which bound is exceeded."""


class _FolderSize:
    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._bytes = 0
        self._files = 0

    def add_bytes(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._settings.all_files_bytes:
            raise _TooLarge(f"the files of the session grew beyond {in_units(self._settings.all_files_bytes)}")

    def add_folder(self, folder: int, depth: int = 0) -> None:
        """With everything below. `folder` is a descriptor."""
        if depth > MAX_DEPTH:
            raise _TooLarge(f"the session had folders more than {MAX_DEPTH} levels deep")
        with os.scandir(folder) as entries:
            for entry in entries:
                self._files += 1
                if self._files > self._settings.files:
                    raise _TooLarge(f"the session had more than {self._settings.files} files")
                # It may have been deleted since it was listed.
                with suppress(OSError):
                    # As on the disk: a file with holes takes less than its size.
                    self.add_bytes(entry.stat(follow_symlinks=False).st_blocks * 512)
                    if entry.is_dir(follow_symlinks=False):
                        self._add_below(folder, entry.name, depth + 1)

    def _add_below(self, parent: int, name: str, depth: int) -> None:
        try:
            # O_NOFOLLOW: it may have become a link since it was listed.
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except PermissionError:
            # Files could still be written there.
            raise _TooLarge("the session had a folder that its owner may not read") from None
        try:
            self.add_folder(folder, depth)
        finally:
            os.close(folder)


_PAUSE_SECONDS = 0.1
# There may be hundreds of services, for hours.
_SERVICE_PAUSE_SECONDS = 2.0
# As a shell reports SIGKILL.
_KILLED = 137
# Sleep four times as long as the last measurement took.
_PAUSE_SHARE = 4


class Watcher(Struct, frozen=True):
    command: Command
    settings: SandboxSettings
    # Process 1 of the sandbox. None: something else bounds its processes.
    pid: int | None
    cgroup: Cgroup | None

    async def watch(self) -> str:
        looking = (self._look_at_processes, self._look_at_folder)
        # Its own threads: others may be busy for a long time, while the command writes to the disk.
        threads = ThreadPoolExecutor(len(looking), "sandbox-watcher")
        looks = [asyncio.create_task(_repeat(look, threads)) for look in looking]
        try:
            done, _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
            threads.shutdown(wait=False)

    def reason_at_end(self) -> str | None:
        """For commands that ended between two looks."""
        if self.cgroup is not None and self.cgroup.ran_out_of_memory:
            return _too_much_memory(self.settings)
        return self._output()

    def _look_at_processes(self) -> str | None:
        if self.cgroup is not None:
            if self.cgroup.ran_out_of_memory:
                return _too_much_memory(self.settings)
            if self.cgroup.ran_out_of_processes:
                return _too_many_processes(self.settings)
            return self._output() or self._disk()
        exceeded = None if self.pid is None else _exceeded(self.pid, self.settings)
        return exceeded or self._output() or self._disk()

    def _look_at_folder(self) -> str | None:
        size = _FolderSize(self.settings)
        with suppress(FileNotFoundError):
            folder = os.open(self.command.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                size.add_folder(folder)
                if self.pid is not None:
                    size.add_bytes(deleted_bytes(self.pid, os.fstat(folder).st_dev))
            except _TooLarge as fault:
                return stopped(str(fault))
            finally:
                os.close(folder)
        return None

    def _output(self) -> str | None:
        if os.fstat(self.command.output.fileno()).st_size < self.settings.file_bytes:
            return None
        return stopped(f"its output exceeded {in_units(self.settings.file_bytes)}")

    def _disk(self) -> str | None:
        """Files can be hidden from `_FolderSize`: deleted ones that are only mapped, or that wait in a socket."""
        with suppress(FileNotFoundError):
            found = os.statvfs(self.command.folder)
            if found.f_bavail * found.f_frsize < self.settings.free_bytes:
                return stopped(f"the disk of the host has less than {in_units(self.settings.free_bytes)} left")
        return None


class ServiceWatcher(Struct, frozen=True):
    """Of a service only its processes: its folders have a size, and the kernel bounds what a cgroup counts."""

    service: Service
    settings: SandboxSettings
    pid: int
    cgroup: Cgroup | None

    @asynccontextmanager
    async def watching(self, kill: Callable[[], None]) -> AsyncIterator[None]:
        if self.cgroup is not None:
            yield
            return
        task = asyncio.create_task(self._watch(kill))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, kill: Callable[[], None]) -> None:
        try:
            reason = await _repeat(partial(_exceeded, self.pid, self.settings), None, _SERVICE_PAUSE_SECONDS)
        except Exception:
            # A service that cannot be watched is not left running.
            log.exception("the watcher of a service failed")
            reason = stopped("its resources could not be measured")
        self.service.errors.write(f"\n{reason}\n".encode())
        kill()


def _exceeded(pid: int, settings: SandboxSettings) -> str | None:
    processes, memory_bytes = usage(pid, settings.memory_bytes)
    if memory_bytes > settings.memory_bytes:
        return _too_much_memory(settings)
    # The rlimit allows no more, so it has been reached.
    if processes >= settings.processes + OWN_PROCESSES:
        return _too_many_processes(settings)
    return None


def _too_much_memory(settings: SandboxSettings) -> str:
    return stopped(f"it used more than {in_units(settings.memory_bytes)} of memory")


def _too_many_processes(settings: SandboxSettings) -> str:
    return stopped(f"it started more than {settings.processes} processes or threads")


async def outcome_of(end: Coroutine[Any, Any, int], watcher: Watcher, seconds: float) -> CommandOutcome:
    """Of a command whose `end` gives its exit code. If the outcome is `stopped`, the caller has to end it."""
    ended = asyncio.create_task(end)
    exceeded = asyncio.create_task(watcher.watch())
    try:
        await asyncio.wait({ended, exceeded}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return CommandOutcome(ended.result(), await asyncio.to_thread(watcher.reason_at_end))
        if exceeded.done():
            return CommandOutcome(_KILLED, _reason(exceeded))
        return CommandOutcome(_KILLED, stopped(f"it ran for more than {seconds:g} s"))
    finally:
        for task in (ended, exceeded):
            task.cancel()
        await asyncio.gather(ended, exceeded, return_exceptions=True)


def _reason(exceeded: asyncio.Task[str]) -> str:
    """A command that cannot be watched is not left running."""
    fault = exceeded.exception()
    if fault is None:
        return exceeded.result()
    log.error("the watcher of a sandbox failed", exc_info=fault)
    return stopped("its resources could not be measured")


async def _repeat(
    look: Callable[[], str | None], threads: ThreadPoolExecutor | None, least_pause_seconds: float = _PAUSE_SECONDS
) -> str:
    loop = asyncio.get_running_loop()
    pause_seconds = least_pause_seconds
    while True:
        await asyncio.sleep(pause_seconds)
        began = time.monotonic()
        reason = await loop.run_in_executor(threads, look)
        if reason is not None:
            return reason
        pause_seconds = max(least_pause_seconds, _PAUSE_SHARE * (time.monotonic() - began))


def stopped(reason: str) -> str:
    return f"The command was stopped because {reason}."


def in_units(size: int) -> str:
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
