"""What the tools need of a sandbox. An adapter is one file with a class that has these methods."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import IO, Protocol
from uuid import UUID

from msgspec import Struct


class SandboxUnavailable(Exception):
    """One line that says why, and what to do."""


class Command(Struct, frozen=True, kw_only=True):
    arguments: list[str]
    # Becomes /workspace: the current folder, and the only one that can be written besides /tmp.
    folder: Path
    # The owner of the folder, as which the command runs. None: the user of the worker.
    user_id: int | None
    # Read-only folders below /workspace: `skills/pdf` → a folder of the host.
    read_only: Mapping[str, Path]
    # Receives stdout and stderr. A file, not a pipe, so that the worker does no work for a flood of output.
    output: IO[bytes]
    seconds: float


class Outcome(Struct, frozen=True):
    # As a shell reports it: 128 + the number of the signal that ended it.
    exit_code: int
    # Why the sandbox ended the command, as a sentence for the model. None: it ended by itself.
    stopped: str | None = None


class ErrorSink(Protocol):
    """Keeps the end of what a service writes to stderr."""

    def write(self, data: bytes) -> None: ...

    def last_line(self) -> str: ...

    def pipe(self) -> AbstractContextManager[int]:
        """A descriptor for the stderr of the service."""


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
    errors: ErrorSink
    # How much output is read ahead.
    buffer_bytes: int


class PipeWriter(Protocol):
    """As asyncio.StreamWriter."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def write_eof(self) -> None: ...


class PipeReader(Protocol):
    """As asyncio.StreamReader."""

    async def readline(self) -> bytes: ...

    async def read(self, n: int = -1) -> bytes: ...


class Pipes(Struct, frozen=True):
    stdin: PipeWriter
    # At its end when the service has ended.
    stdout: PipeReader


class Users(Protocol):
    """Users of the host, of whom each workspace has one of its own."""

    # For what belongs to no workspace.
    first: int

    def hold(self, workspace_id: UUID) -> int:
        """The user of the workspace. `release` has to follow. Raises SandboxUnavailable."""

    def release(self, workspace_id: UUID) -> None: ...


class Sandbox(Protocol):
    @property
    def users(self) -> Users | None:
        """The users of the host that own folders and run commands. None: the user of the worker."""

    async def check(self) -> None:
        """Raises SandboxUnavailable if no command can be run."""

    async def run(self, command: Command) -> Outcome:
        """Runs one command. When this returns or is cancelled, no process of it is left.

        An adapter for a remote sandbox copies the folder there before, and back after the command."""

    def serve(self, service: Service) -> AbstractAsyncContextManager[Pipes]:
        """Runs a service while the block is entered. When the block has been left, or this process has died, no process
        of the service is left. Raises SandboxUnavailable.

        A service that exceeds a bound is ended, and the reason is the last line of `errors`."""


# The exception of a tool that did nothing.


class Refusal(Exception):
    """The tool did nothing. The reason is told to the model as the result of its call."""
