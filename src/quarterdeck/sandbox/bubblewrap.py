"""Commands in namespaces of their own, by bubblewrap. docs/run/sandbox.md says what is isolated and what is not."""

import asyncio
import os
import platform
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings
from quarterdeck.sandbox.bwrap_arguments import (
    MADE_UP_FILES,
    RESERVED,
    bwrap_arguments,
    look_at_host,
    service_arguments,
)
from quarterdeck.sandbox.bwrap_process import BwrapProcess, start_bwrap
from quarterdeck.sandbox.bwrap_program import Program
from quarterdeck.sandbox.cgroups import Cgroup, Parents, create_cgroup, find_parents, limited
from quarterdeck.sandbox.descriptors import finish, memory_file
from quarterdeck.sandbox.host_users import host_users, user_of
from quarterdeck.sandbox.model import Command, Outcome, Pipes, SandboxUnavailable, Service
from quarterdeck.sandbox.output_tail import last_line
from quarterdeck.sandbox.service_pipes import Descriptors, open_pipes
from quarterdeck.sandbox.syscall_filter import syscall_filter
from quarterdeck.sandbox.trial import try_sandbox
from quarterdeck.sandbox.watcher import ServiceWatcher, Watcher, outcome_of

# Since then, the number of processes is counted per user namespace.
_KERNEL = (5, 14)


class Bubblewrap:
    """One per process. `check` comes first."""

    def __init__(self, settings: SandboxSettings, workspace: WorkspaceSettings, data_dir: Path) -> None:
        self._settings = settings
        self._workspace = workspace
        self._view = look_at_host(settings, data_dir, Path.cwd())
        self.users = host_users(settings, data_dir)
        self._program: Program | None = None
        self._cgroups: Parents | None = None

    async def check(self) -> None:
        _check_kernel()
        try:
            self._program = Program(is_started_by_others=self.users is not None)
        except OSError as fault:
            raise SandboxUnavailable(f"bubblewrap could not be read: {fault}") from fault
        self._cgroups = await asyncio.to_thread(find_parents, self._settings)
        await try_sandbox(self, "bubblewrap")

    async def run(self, command: Command) -> Outcome:
        async with self._cgroup() as cgroup:
            return await self._run(command, cgroup)

    @asynccontextmanager
    async def serve(self, service: Service) -> AsyncIterator[Pipes]:
        with user_of(self.users, service.workspace_id) as user_id:
            async with self._cgroup() as cgroup, open_pipes(service) as (pipes, descriptors, close_descriptor):
                process = self._start_service(service, descriptors, user_id, cgroup is not None)
                close_descriptor()
                try:
                    pid = await _release(process, cgroup)
                    async with ServiceWatcher(service, self._settings, pid, cgroup).watching(process.kill):
                        yield pipes
                finally:
                    await process.close()

    @asynccontextmanager
    async def _cgroup(self) -> AsyncIterator[Cgroup | None]:
        if self._cgroups is None:
            yield None
            return
        cgroup = await asyncio.to_thread(create_cgroup, self._cgroups, self._settings)
        try:
            yield cgroup
        finally:
            await finish(asyncio.to_thread(cgroup.remove))

    async def _run(self, command: Command, cgroup: Cgroup | None) -> Outcome:
        _prepare_mount_points(command)
        process = self._start_command(command, cgroup is not None)
        try:
            pid = await _release(process, cgroup)
            watcher = Watcher(command, self._settings, self._workspace, pid, cgroup)
            return await outcome_of(process.wait(), watcher, command.seconds)
        finally:
            await process.close()

    def _start_command(self, command: Command, has_cgroup: bool) -> BwrapProcess:
        limited_command = limited(
            command.arguments, self._settings, self._workspace, command.seconds, has_cgroup=has_cgroup
        )
        return self._start(
            lambda files, filter_fd: bwrap_arguments(self._view, command, self._settings, files, filter_fd),
            limited_command,
            command.output.fileno(),
            lambda: last_line(command.output),
            command.user_id,
            has_cgroup=has_cgroup,
        )

    def _start_service(
        self, service: Service, descriptors: Descriptors, user_id: int | None, has_cgroup: bool
    ) -> BwrapProcess:
        return self._start(
            lambda files, filter_fd: service_arguments(self._view, service, self._settings, files, filter_fd),
            limited(service.arguments, self._settings, self._workspace, None, has_cgroup=has_cgroup),
            descriptors.stderr,
            service.errors.last_line,
            user_id,
            has_cgroup=has_cgroup,
            pipes=descriptors.stdin_and_stdout,
        )

    def _start(
        self,
        arguments: Callable[[Mapping[str, int], int], list[str]],
        command: Sequence[str],
        output: int,
        reason: Callable[[], str],
        user_id: int | None,
        *,
        has_cgroup: bool,
        pipes: int | None = None,
    ) -> BwrapProcess:
        assert self._program is not None, "check() comes first"
        files = {path: memory_file(data) for path, data in MADE_UP_FILES.items()}
        filter_fd = memory_file(syscall_filter(platform.machine(), has_cgroup=has_cgroup))
        descriptors = [*files.values(), filter_fd]
        try:
            options = arguments(files, filter_fd)
            return start_bwrap(self._program, options, command, descriptors, output, reason, user_id, pipes)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _check_kernel() -> None:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or found is None or tuple(map(int, found.groups())) < _KERNEL:
        raise SandboxUnavailable(f"bubblewrap needs Linux {_KERNEL[0]}.{_KERNEL[1]} or newer")


async def _release(process: BwrapProcess, cgroup: Cgroup | None) -> int:
    """Lets the command begin, within its limits."""
    try:
        pid = await process.started()
        if cgroup is not None:
            cgroup.add(pid)
        process.release()
    except (ProcessLookupError, BrokenPipeError) as fault:
        # It ended meanwhile, for example because a folder cannot be mounted.
        raise process.start_failure() from fault
    return pid


def _prepare_mount_points(command: Command) -> None:
    """bwrap follows links to mount points, and no file of a former command shall stand there."""
    for name in {RESERVED, *(path.split("/")[0] for path in command.read_only)}:
        path = command.folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
