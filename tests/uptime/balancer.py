"""What stands before several API processes: takes a connection and passes it to one that lives, in turn."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

_PIECE_BYTES = 64 * 1024
_RETRY_SECONDS = 0.05
# As balancers do: not for ever.
_CONNECT_TRIES = 100


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[int]:
    """Its port."""
    turns = itertools.cycle(ports)
    passing: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_pass_on(reader, writer, turns, len(ports)))
        passing.add(task)
        task.add_done_callback(passing.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(passing):
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turns: "itertools.cycle[int]", ports: int
) -> None:
    try:
        server_reader, server_writer = await _connect(turns, ports)
    except OSError:
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
    except OSError:
        # Cut on one side is cut on the other.
        writer.transport.abort()
        server_writer.transport.abort()
    finally:
        writer.close()
        server_writer.close()


async def _connect(turns: "itertools.cycle[int]", ports: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for attempt in range(1, _CONNECT_TRIES + 1):
        with suppress(ConnectionRefusedError):
            return await asyncio.open_connection("127.0.0.1", next(turns))
        if attempt % ports == 0:
            await asyncio.sleep(_RETRY_SECONDS)
    raise ConnectionRefusedError("none lives")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
