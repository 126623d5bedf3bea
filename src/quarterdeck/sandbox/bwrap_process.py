"""One running bwrap: its start, its end, and the signals between.

bwrap has a process outside of the namespaces and one inside, number 1 of its process namespace. When the latter has
ended, every process of the sandbox has ended: the kernel sees to it.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from quarterdeck.sandbox.bwrap_program import Program
from quarterdeck.sandbox.descriptors import finish, memory_file, readable
from quarterdeck.sandbox.model import SandboxUnavailable

_PR_SET_CHILD_SUBREAPER = 36
_sandboxes = 0


class BwrapProcess:
    """Started, but the command waits for `release`."""

    def __init__(self, process: subprocess.Popen[bytes], status: int, blocker: int, reason: Callable[[], str]) -> None:
        self._process = process
        self._status = status
        self._blocker: int | None = blocker
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
        assert self._blocker is not None
        os.write(self._blocker, b"1")
        os.close(self._blocker)
        self._blocker = None

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
        if self._init is None:
            # bwrap may wait for nothing of ours: ending it ends its child.
            signal.pidfd_send_signal(self._outer, signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            await readable(self._init)
        await readable(self._outer)
        self._process.wait()
        if self._init is not None:
            _reap(self._init)
        _adopt_orphans(-1)
        os.close(self._outer)
        os.close(self._status)
        if self._blocker is not None:
            os.close(self._blocker)


def start_bwrap(
    program: Program,
    arguments: Sequence[str],
    command: Sequence[str],
    descriptors: Sequence[int],
    output: int,
    reason: Callable[[], str],
    user_id: int | None,
    pipes: int | None = None,
) -> BwrapProcess:
    """`pipes` becomes stdin and stdout, if it is given. Otherwise there is no stdin, and stdout is `output`."""
    with _pipe() as (status_reader, status_writer), _pipe() as (block_reader, block_writer):
        # Not as arguments of the process: /proc/1/cmdline can be read inside.
        options = memory_file("".join(f"{argument}\0" for argument in arguments).encode())
        own = (options, status_writer, block_reader)
        try:
            process = subprocess.Popen(
                [
                    program.path,
                    *("--json-status-fd", str(status_writer), "--block-fd", str(block_reader)),
                    *("--args", str(options), "--", *command),
                ],
                stdin=subprocess.DEVNULL if pipes is None else pipes,
                stdout=output if pipes is None else pipes,
                stderr=output,
                cwd="/",
                env=program.environment,
                pass_fds=(*own, *descriptors, *program.descriptors),
                user=user_id,
                group=user_id,
                extra_groups=None if user_id is None else [],
            )
        finally:
            os.close(options)
        return BwrapProcess(process, os.dup(status_reader), os.dup(block_writer), reason)


def _reap(pidfd: int) -> None:
    """Of a process that has ended: of a child of ours, unless its own parent has waited for it."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)


def _adopt_orphans(change: int) -> None:
    """While sandboxes run, this process waits for theirs whose parent has ended. In a container, nobody else might."""
    global _sandboxes
    _sandboxes += change
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(_sandboxes > 0), 0, 0, 0)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)
