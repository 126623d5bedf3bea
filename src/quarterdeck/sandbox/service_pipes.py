"""The pipes of a service: a pair of sockets, of which it has one as its stdin and stdout, and a pipe for its stderr."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from quarterdeck.sandbox.model import Pipes, Service


class Descriptors(Struct, frozen=True):
    """Those of the service."""

    stdin_and_stdout: int
    stderr: int


@asynccontextmanager
async def open_pipes(service: Service) -> AsyncIterator[tuple[Pipes, Descriptors, Callable[[], None]]]:
    """The pipes, the descriptors for the service, and a function that closes the first of them. It must be called once
    the service has it: otherwise the end of the service would not be seen."""
    ours, theirs = socket.socketpair()
    with theirs, service.errors.pipe() as stderr:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=service.buffer_bytes)
        except BaseException:
            ours.close()
            raise
        try:
            yield Pipes(writer, reader), Descriptors(theirs.fileno(), stderr), theirs.close
        finally:
            # Not `close`: it would wait for a service that reads nothing.
            writer.transport.abort()
