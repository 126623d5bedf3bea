"""The pipes of a service: a pair of sockets, of which the service has one as its stdin and stdout."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from quarterdeck.agents.sandbox.model import Pipes


@asynccontextmanager
async def open_pipes(buffer_bytes: int) -> AsyncIterator[tuple[Pipes, int, Callable[[], None]]]:
    """The pipes, the descriptor for the service, and a function that closes this one. It must be called once the
    service has it: otherwise the end of the service would not be seen."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=buffer_bytes)
        except BaseException:
            ours.close()
            raise
        try:
            yield Pipes(writer, reader), theirs.fileno(), theirs.close
        finally:
            # Not `close`: it would wait for a service that reads nothing.
            writer.transport.abort()
