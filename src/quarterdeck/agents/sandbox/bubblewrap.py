"""Commands in namespaces of their own, by bubblewrap. docs/sandbox.md says what is isolated and what is not."""

import asyncio
import os
import platform
import re
import tempfile
from pathlib import Path

from quarterdeck.agents.sandbox.bwrap_arguments import MADE_UP_FILES, RESERVED, bwrap_arguments, look_at_host
from quarterdeck.agents.sandbox.bwrap_process import BwrapProcess, start_bwrap
from quarterdeck.agents.sandbox.bwrap_program import Program
from quarterdeck.agents.sandbox.cgroups import Cgroup, Parents, create_cgroup, find_parents
from quarterdeck.agents.sandbox.descriptors import finish, memory_file
from quarterdeck.agents.sandbox.model import Command, Outcome, SandboxUnavailable
from quarterdeck.agents.sandbox.rlimits import limited
from quarterdeck.agents.sandbox.syscall_filter import syscall_filter
from quarterdeck.agents.sandbox.watcher import Watcher, stopped
from quarterdeck.core.logging import log
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings

# Since then, the number of processes is counted per user namespace.
_KERNEL = (5, 14)
_KILLED = 137
_CHECK_SECONDS = 30.0


class Bubblewrap:
    """One per process. `check` comes first."""

    def __init__(self, settings: SandboxSettings, workspace: WorkspaceSettings, data_dir: Path) -> None:
        self._settings = settings
        self._workspace = workspace
        self._view = look_at_host(settings, data_dir, Path.cwd())
        self._program: Program | None = None
        self._cgroups: Parents | None = None

    @property
    def user_id(self) -> int | None:
        return self._settings.user_id if os.geteuid() == 0 else None

    async def check(self) -> None:
        _check_kernel()
        try:
            self._program = Program(self.user_id)
            self._cgroups = await asyncio.to_thread(find_parents, self._settings)
            with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="quarterdeck-") as folder:
                await self._check_command(Path(folder))
        except OSError as fault:
            raise SandboxUnavailable(f"bubblewrap could not be tried: {fault}") from fault

    async def _check_command(self, folder: Path) -> None:
        if self.user_id is not None:
            os.chown(folder, self.user_id, self.user_id)
        with tempfile.TemporaryFile() as output:
            arguments = ["/bin/sh", "-c", "exit 0"]
            outcome = await self.run(
                Command(arguments=arguments, folder=folder, read_only={}, output=output, seconds=_CHECK_SECONDS)
            )
        if outcome.exit_code != 0:
            raise SandboxUnavailable(outcome.stopped or f"bubblewrap: `exit 0` ended with {outcome.exit_code}")

    async def run(self, command: Command) -> Outcome:
        cgroup = None
        if self._cgroups is not None:
            cgroup = await asyncio.to_thread(create_cgroup, self._cgroups, self._settings)
        try:
            return await self._run(command, cgroup)
        finally:
            if cgroup is not None:
                await finish(asyncio.to_thread(cgroup.remove))

    async def _run(self, command: Command, cgroup: Cgroup | None) -> Outcome:
        _prepare_mount_points(command)
        process = self._start(command, cgroup is not None)
        try:
            pid = await process.started()
            if cgroup is not None:
                cgroup.add(pid)
            process.release()
            watcher = Watcher(command, self._settings, self._workspace, pid, cgroup)
            return await _outcome(process, watcher, command.seconds)
        finally:
            await process.close()

    def _start(self, command: Command, has_cgroup: bool) -> BwrapProcess:
        assert self._program is not None, "check() comes first"
        files = {path: memory_file(data) for path, data in MADE_UP_FILES.items()}
        filter_fd = memory_file(syscall_filter(platform.machine()))
        descriptors = [*files.values(), filter_fd]
        try:
            arguments = bwrap_arguments(self._view, command, self._settings, files, filter_fd)
            limited_command = limited(
                command.arguments, self._settings, self._workspace, command.seconds, has_cgroup=has_cgroup
            )
            return start_bwrap(self._program, arguments, limited_command, descriptors, command.output, self.user_id)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _check_kernel() -> None:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or found is None or tuple(map(int, found.groups())) < _KERNEL:
        raise SandboxUnavailable(f"bubblewrap needs Linux {_KERNEL[0]}.{_KERNEL[1]} or newer")


def _prepare_mount_points(command: Command) -> None:
    """bwrap follows links to mount points, and no file of a former command shall stand there."""
    for name in {RESERVED, *(path.split("/")[0] for path in command.read_only)}:
        path = command.folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)


async def _outcome(process: BwrapProcess, watcher: Watcher, seconds: float) -> Outcome:
    ended = asyncio.create_task(process.wait())
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
