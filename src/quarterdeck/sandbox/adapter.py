"""What the tools need of a sandbox, and what the adapters for sandboxes share: pipes, files in memory, and a trial.

An adapter is one file with a class that has the methods of `Sandbox`.
"""

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.settings import variable
from quarterdeck.sandbox.host_users import HostUsers
from quarterdeck.sandbox.model import SandboxUnavailable

_BYTES = 2000
_PIPE_BYTES = 64 * 1024
# Between two reads of a pipe, so that a flood takes little time of the event loop. The service waits meanwhile.
_PAUSE_SECONDS = 0.01


def last_line(output: IO[bytes]) -> str:
    """Empty if there is none. The descriptor itself may be for writing only."""
    with suppress(OSError), open(f"/proc/self/fd/{output.fileno()}", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
        return _last_line(file.read())
    return ""


def _last_line(data: bytes) -> str:
    return (data.decode(errors="replace").strip().splitlines() or [""])[-1]


class ErrorTail:
    """The end of what a service wrote to stderr, in memory. A file would grow on the disk of the host for hours."""

    def __init__(self) -> None:
        self._data = b""
        self._pipe: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        self._read()
        self._add(data)

    def last_line(self) -> str:
        self._read()
        return _last_line(self._data)

    @contextmanager
    def pipe(self) -> Iterator[int]:
        """A descriptor for the stderr of the service. It is read until the block is left."""
        self._pipe, writer = os.pipe()
        os.set_blocking(self._pipe, False)
        self._wait()
        try:
            yield writer
        finally:
            self._read()
            asyncio.get_running_loop().remove_reader(self._pipe)
            if self._timer is not None:
                self._timer.cancel()
            os.close(self._pipe)
            os.close(writer)
            self._pipe = None

    def _wait(self) -> None:
        assert self._pipe is not None
        asyncio.get_running_loop().add_reader(self._pipe, self._on_data)

    def _on_data(self) -> None:
        assert self._pipe is not None
        self._read()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pipe)
        self._timer = loop.call_later(_PAUSE_SECONDS, self._wait)

    def _read(self) -> None:
        if self._pipe is not None:
            with suppress(BlockingIOError):
                self._add(os.read(self._pipe, _PIPE_BYTES))

    def _add(self, data: bytes) -> None:
        self._data = (self._data + data)[-_BYTES:]


# Where commands see the folder of their session. Models name files by it, too.
SANDBOX_FOLDER = "/files"


class Command(Struct, frozen=True, kw_only=True):
    arguments: list[str]
    # Becomes SANDBOX_FOLDER: the current folder, and the only one that can be written besides /tmp.
    folder: Path
    # The owner of the folder, as which the command runs. None: the user of the worker.
    user_id: int | None
    # Read-only folders of the host below RESERVED, by their names there.
    skills: Mapping[str, Path]
    # Receives stdout and stderr. A file, not a pipe, so that the worker does no work for a flood of output.
    output: IO[bytes]
    seconds: float


class CommandOutcome(Struct, frozen=True):
    # As a shell reports it: 128 + the number of the signal that ended it.
    exit_code: int
    # Why the sandbox ended the command, as a sentence for the model. None: it ended by itself.
    stopped: str | None = None


class Service(Struct, frozen=True, kw_only=True):
    """A command that runs until its caller ends it. Its folder is empty, in memory, and of its own."""

    workspace_id: UUID
    arguments: Sequence[str]
    environment: Mapping[str, str]
    # The setting for commands does not count: a service has the network only if this says so.
    network: bool
    # Folders of the host that it can read, under the same paths, besides those that every command can read.
    readable: Sequence[Path]
    # Receives stderr.
    errors: ErrorTail
    # How much output is read ahead.
    buffer_bytes: int


class Pipes(Struct, frozen=True):
    stdin: asyncio.StreamWriter
    # At its end when the service has ended.
    stdout: asyncio.StreamReader


class Sandbox(Protocol):
    @property
    def users(self) -> HostUsers | None:
        """The users of the host that own folders and run commands. None: the user of the worker."""

    async def check(self) -> None:
        """Raises SandboxUnavailable if no command can be run."""

    async def run(self, command: Command) -> CommandOutcome:
        """Runs one command. When this returns or is cancelled, no process of it is left.

        An adapter for a remote sandbox copies the folder there before, and back after the command."""

    def serve(self, service: Service) -> AbstractAsyncContextManager[Pipes]:
        """Runs a service while the block is entered. When the block has been left, or this process has died, no process
        of the service is left. Raises SandboxUnavailable.

        A service that exceeds a bound is ended, and the reason is the last line of `errors`."""


# The pipes of a service: a pair of sockets, of which it has one as its stdin and stdout, and a pipe for its stderr.


@asynccontextmanager
async def open_pipes(service: Service) -> AsyncIterator[tuple[Pipes, socket.socket, int]]:
    """The pipes, and for the service: a socket for stdin and stdout, and a descriptor for stderr. The socket must be
    closed once the service has it: otherwise the end of the service would not be seen."""
    ours, theirs = socket.socketpair()
    with theirs, service.errors.pipe() as stderr:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=service.buffer_bytes)
        except BaseException:
            ours.close()
            raise
        try:
            yield Pipes(writer, reader), theirs, stderr
        finally:
            # Not `close`: it would wait for a service that reads nothing.
            writer.transport.abort()


# Waiting for descriptors, and files in memory that are handed to another process.


async def readable(descriptor: int) -> None:
    """Waits for data or the end of a pipe, or for the end of the process of a pidfd."""
    loop = asyncio.get_running_loop()
    found = asyncio.Event()
    loop.add_reader(descriptor, found.set)
    try:
        await found.wait()
    finally:
        loop.remove_reader(descriptor)


def memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Runs to its end, however often the caller is cancelled meanwhile."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as fault:
            cancelled = fault
    task.result()
    if cancelled is not None:
        raise cancelled


# A trial of a sandbox, with a command that only looks at its folder.

_SECONDS = 30.0
_SCRIPT = "test -e found && echo 1 > written"


async def try_sandbox(sandbox: Sandbox, name: str) -> None:
    """Raises SandboxUnavailable, which names the sandbox."""
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="quarterdeck-") as folder:
            await _try_in(sandbox, Path(folder), name)
    except OSError as fault:
        raise SandboxUnavailable(f"{name} could not be tried: {fault}") from fault


def _give(folder: Path, user_id: int, name: str) -> None:
    try:
        os.chown(folder, user_id, user_id)
    except OSError as fault:
        # In a container with few users, or without the capabilities of root.
        raise SandboxUnavailable(
            f"{name} needs the user {user_id}, which this root cannot use ({fault.strerror}): run as an ordinary user, "
            f"or set {variable('sandbox', 'user_id')} to a user of this container that has no account"
        ) from fault


async def _try_in(sandbox: Sandbox, folder: Path, name: str) -> None:
    (folder / "found").touch()
    user_id = None if sandbox.users is None else sandbox.users.first
    if user_id is not None:
        _give(folder, user_id, name)
    with tempfile.TemporaryFile() as output:
        arguments = ["/bin/bash", "-c", _SCRIPT]
        outcome = await sandbox.run(
            Command(arguments=arguments, folder=folder, user_id=user_id, skills={}, output=output, seconds=_SECONDS)
        )
    if outcome.stopped is not None:
        raise SandboxUnavailable(f"{name} does not work: {outcome.stopped}")
    if outcome.exit_code != 0 or not (folder / "written").exists():
        raise SandboxUnavailable(f"{name} does not work: a command could not use its folder")
