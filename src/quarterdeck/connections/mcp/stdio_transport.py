"""stdio to a server in the sandbox. Messages are lines of JSON."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from quarterdeck.connections.credentials import redaction
from quarterdeck.connections.credentials.model import MIN_SECRET_CHARACTERS
from quarterdeck.connections.mcp.cleaning import clean_line
from quarterdeck.connections.mcp.guarded_streams import TOO_EXPENSIVE, Problem, decodes_quickly
from quarterdeck.connections.mcp.model import StdioCommand
from quarterdeck.core.settings import McpSettings
from quarterdeck.sandbox.model import Pipes, Sandbox, SandboxUnavailable, Service
from quarterdeck.sandbox.output_tail import ErrorTail

# Lines that are no messages. Some servers print a few.
_INVALID_LINES = 100
_ERROR_CHARACTERS = 300


@asynccontextmanager
async def connect_stdio(
    sandbox: Sandbox, workspace_id: UUID, command: StdioCommand, settings: McpSettings, problem: Problem
) -> AsyncIterator[TransportStreams]:
    errors = ErrorTail()
    service = Service(
        workspace_id=workspace_id,
        arguments=command.command,
        environment=command.environment,
        network=command.network,
        readable=[Path(folder) for folder in command.readable],
        errors=errors,
        buffer_bytes=settings.message_bytes,
    )
    try:
        async with (
            sandbox.serve(service) as pipes,
            _streams(_Lines(pipes, settings, problem, errors, command)) as streams,
        ):
            yield streams
    except SandboxUnavailable as fault:
        raise problem.found(f"The server could not be started: {fault}") from fault


@asynccontextmanager
async def _streams(lines: "_Lines") -> AsyncIterator[TransportStreams]:
    incoming, reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    async with incoming, reader, writer, outgoing, anyio.create_task_group() as group:
        group.start_soon(lines.read, incoming)
        group.start_soon(lines.write, outgoing)
        try:
            yield reader, writer
        finally:
            group.cancel_scope.cancel()


class _Lines:
    def __init__(
        self, pipes: Pipes, settings: McpSettings, problem: Problem, errors: ErrorTail, command: StdioCommand
    ) -> None:
        self._pipes = pipes
        self._max_bytes = settings.message_bytes
        self._problem = problem
        self._errors = errors
        self._redact = _redactor(command)

    async def read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        invalid_lines = 0
        # Since the last answer.
        received = 0
        async with incoming:
            while invalid_lines <= _INVALID_LINES:
                line = await self._line()
                if line is None:
                    return
                received += len(line)
                if received > self._max_bytes:
                    self._problem.found(f"The server sent more than {self._max_bytes} bytes without an answer.")
                    return
                if not await asyncio.to_thread(decodes_quickly, line):
                    self._problem.found(TOO_EXPENSIVE)
                    return
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    invalid_lines += 1
                    continue
                if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    received = 0
                try:
                    await incoming.send(SessionMessage(message))
                except anyio.BrokenResourceError:
                    return
            self._problem.found("The server sent too many lines that are not messages.")

    async def _line(self) -> bytes | None:
        """None at the end, and if a line is too long."""
        try:
            line = await self._pipes.stdout.readline()
        except ValueError:
            self._problem.found(f"The server sent a message of more than {self._max_bytes} bytes.")
            return None
        except OSError:
            line = b""
        if not line:
            # Redacted first: a part of a secret would not be found.
            reason = self._redact(clean_line(self._redact(self._errors.last_line()), _ERROR_CHARACTERS))
            self._problem.found(f"The server ended: {reason}" if reason else "The server ended.")
            return None
        return line

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._pipes.stdin.write(text.encode() + b"\n")
                await self._pipes.stdin.drain()
        except OSError:
            # The reader sees the end of the server too, and says why.
            return


def _redactor(command: StdioCommand) -> Callable[[str], str]:
    """For messages about the server: the environment may hold secrets of the operator."""
    forms: set[str] = set()
    for value in command.environment.values():
        if len(value) >= MIN_SECRET_CHARACTERS:
            forms |= redaction.forms(value)
    return lambda text: redaction.redact(text, forms)
