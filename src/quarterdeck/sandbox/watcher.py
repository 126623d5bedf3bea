"""Watches a running command for bounds that the kernel does not keep, or does not report. Ends with the reason to stop
the command.

Looks are taken in threads. The pauses between them grow with their cost, so that a command cannot keep the worker busy.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from quarterdeck.core.agent_settings import SandboxSettings, WorkspaceSettings
from quarterdeck.core.logging import log
from quarterdeck.sandbox.cgroups import Cgroup
from quarterdeck.sandbox.folder_size import MAX_DEPTH, FolderBounds, folder_size
from quarterdeck.sandbox.model import Command, Outcome, Service
from quarterdeck.sandbox.rlimits import OWN_PROCESSES
from quarterdeck.sandbox.sandbox_usage import deleted_bytes, usage

_PAUSE_SECONDS = 0.1
# There may be hundreds of services, for hours.
_SERVICE_PAUSE_SECONDS = 2.0
# As a shell reports SIGKILL.
_KILLED = 137
# Of the pause after a look to the look.
_PAUSE_SHARE = 4


class Watcher(Struct, frozen=True):
    command: Command
    settings: SandboxSettings
    workspace: WorkspaceSettings
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
            return self._memory()
        return self._output()

    def _look_at_processes(self) -> str | None:
        if self.cgroup is not None:
            if self.cgroup.ran_out_of_memory:
                return self._memory()
            if self.cgroup.ran_out_of_processes:
                return self._processes()
            return self._output() or self._disk()
        if self.pid is None:
            return self._output() or self._disk()
        found = usage(self.pid, self.settings.memory_bytes)
        if found.memory_bytes > self.settings.memory_bytes:
            return self._memory()
        # The rlimit allows no more, so it has been reached.
        if found.processes >= self.settings.processes + OWN_PROCESSES:
            return self._processes()
        return self._output() or self._disk()

    def _look_at_folder(self) -> str | None:
        bounds = FolderBounds(self.workspace.bytes, self.workspace.files)
        with suppress(FileNotFoundError):
            folder = os.open(self.command.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                size = folder_size(folder, bounds)
                if self.pid is not None:
                    size.bytes += deleted_bytes(self.pid, os.fstat(folder).st_dev)
            finally:
                os.close(folder)
            if size.bytes > bounds.bytes:
                return stopped(f"the workspace grew beyond {in_units(bounds.bytes)}")
            if size.files > bounds.files:
                return stopped(f"the workspace had more than {bounds.files} files")
            if size.has_unreadable:
                return stopped("the workspace had a folder that its owner may not read")
            if size.depth > MAX_DEPTH:
                return stopped(f"the workspace had folders more than {MAX_DEPTH} levels deep")
        return None

    def _memory(self) -> str:
        return stopped(f"it used more than {in_units(self.settings.memory_bytes)} of memory")

    def _processes(self) -> str:
        return stopped(f"it started more than {self.settings.processes} processes or threads")

    def _output(self) -> str | None:
        if os.fstat(self.command.output.fileno()).st_size < self.workspace.file_bytes:
            return None
        return stopped(f"its output exceeded {in_units(self.workspace.file_bytes)}")

    def _disk(self) -> str | None:
        """Files can be hidden from `folder_size`: deleted ones that are only mapped, or that wait in a socket."""
        with suppress(FileNotFoundError):
            found = os.statvfs(self.command.folder)
            if found.f_bavail * found.f_frsize < self.workspace.free_bytes:
                return stopped(f"the disk of the host has less than {in_units(self.workspace.free_bytes)} left")
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
            reason = await _repeat(self._look, None, _SERVICE_PAUSE_SECONDS)
        except Exception:
            # A service that cannot be watched is not left running.
            log.exception("the watcher of a service failed")
            reason = stopped("its resources could not be measured")
        self.service.errors.write(f"\n{reason}\n".encode())
        kill()

    def _look(self) -> str | None:
        found = usage(self.pid, self.settings.memory_bytes)
        if found.memory_bytes > self.settings.memory_bytes:
            return stopped(f"it used more than {in_units(self.settings.memory_bytes)} of memory")
        if found.processes >= self.settings.processes + OWN_PROCESSES:
            return stopped(f"it started more than {self.settings.processes} processes or threads")
        return None


async def outcome_of(end: Coroutine[Any, Any, int], watcher: Watcher, seconds: float) -> Outcome:
    """Of a command whose `end` gives its exit code. If the outcome is `stopped`, the caller has to end it."""
    ended = asyncio.create_task(end)
    exceeded = asyncio.create_task(watcher.watch())
    try:
        await asyncio.wait({ended, exceeded}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return Outcome(ended.result(), await asyncio.to_thread(watcher.reason_at_end))
        if exceeded.done():
            return Outcome(_KILLED, _reason(exceeded))
        return Outcome(_KILLED, stopped(f"it ran for more than {seconds:g} s"))
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
