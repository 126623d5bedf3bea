"""Commands in namespaces of their own, by bubblewrap. docs/sandbox.md says what is isolated and what is not."""

import asyncio
import os
import platform
import re
from pathlib import Path

from quarterdeck.agents.sandbox.bwrap_arguments import MADE_UP_FILES, RESERVED, bwrap_arguments, look_at_host
from quarterdeck.agents.sandbox.bwrap_process import BwrapProcess, start_bwrap
from quarterdeck.agents.sandbox.bwrap_program import Program
from quarterdeck.agents.sandbox.cgroups import Cgroup, Parents, create_cgroup, find_parents
from quarterdeck.agents.sandbox.descriptors import finish, memory_file
from quarterdeck.agents.sandbox.model import Command, Outcome, SandboxUnavailable
from quarterdeck.agents.sandbox.rlimits import limited
from quarterdeck.agents.sandbox.syscall_filter import syscall_filter
from quarterdeck.agents.sandbox.trial import try_sandbox
from quarterdeck.agents.sandbox.watcher import Watcher, outcome_of
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings

# Since then, the number of processes is counted per user namespace.
_KERNEL = (5, 14)


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
        except OSError as fault:
            raise SandboxUnavailable(f"bubblewrap could not be read: {fault}") from fault
        self._cgroups = await asyncio.to_thread(find_parents, self._settings)
        await try_sandbox(self, "bubblewrap")

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
            return await outcome_of(process.wait(), watcher, command.seconds)
        finally:
            await process.close()

    def _start(self, command: Command, has_cgroup: bool) -> BwrapProcess:
        assert self._program is not None, "check() comes first"
        files = {path: memory_file(data) for path, data in MADE_UP_FILES.items()}
        filter_fd = memory_file(syscall_filter(platform.machine(), has_cgroup=has_cgroup))
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
