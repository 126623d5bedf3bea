"""Readers of event streams: when each of them has each entry of its session's log."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles
from time import perf_counter
from typing import cast
from uuid import UUID

from bench.case import BenchError, Taken
from bench.server import Server
from bench.submitting import TEXT
from bench.wire import request

READERS = 500
_APPENDS_A_SECOND = 5
_ENTRY = b"event: input.accepted\n"
# Only what was lost takes this long.
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.01


class Reader(asyncio.Protocol):
    """Notes the time of every input that the stream tells of. What else comes is passed over."""

    def __init__(self) -> None:
        self.seen_at: list[float] = []
        self.opened = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, server: Server, session_id: UUID) -> None:
        path = f"/v1/sessions/{session_id}/events?after=0"
        self._transport.write(request("GET", path, server.key, Accept="text/event-stream"))

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        if not self.opened.done():
            self.opened.set_result(None)
        text = self._rest + data
        self.seen_at += [now] * text.count(_ENTRY)
        # An entry may be cut anywhere, also inside of what is looked for.
        self._rest = text[text.rfind(_ENTRY) + len(_ENTRY) :][-len(_ENTRY) + 1 :]

    async def until_seen(self, count: int) -> None:
        deadline = perf_counter() + _PATIENCE_SECONDS
        while len(self.seen_at) < count:
            if perf_counter() > deadline:
                raise BenchError(f"a reader has seen {len(self.seen_at)} of {count} entries")
            await asyncio.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def reading(server: Server, sessions: Sequence[UUID], readers: int) -> AsyncIterator[dict[UUID, list[Reader]]]:
    """Dealt out evenly, and all let in."""
    found: dict[UUID, list[Reader]] = {session_id: [] for session_id in sessions}
    loop = asyncio.get_running_loop()
    try:
        for number in range(readers):
            session_id = sessions[number % len(sessions)]
            _, reader = await loop.create_connection(Reader, "127.0.0.1", server.port)
            found[session_id].append(reader)
            reader.ask(server, session_id)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.gather(*(reader.opened for there in found.values() for reader in there))
        yield found
    finally:
        for there in found.values():
            for reader in there:
                reader.close()


async def append_to_reader(server: Server, *, readers: int, sessions: int, seconds: int) -> Taken:
    """From the sending of an input to its arrival at each reader: the time that 99 of 100 do not exceed."""
    async with server.caller() as caller:
        ids = await caller.new_sessions(sessions)
        sent_at: dict[UUID, list[float]] = {session_id: [] for session_id in ids}
        async with reading(server, ids, readers) as by_session:
            for number in range(_APPENDS_A_SECOND * seconds):
                session_id = ids[number % sessions]
                sent_at[session_id].append(perf_counter())
                await caller.submit(session_id, f"{TEXT} {number}")
                await asyncio.sleep(1 / _APPENDS_A_SECOND)
            for session_id, there in by_session.items():
                for reader in there:
                    await reader.until_seen(len(sent_at[session_id]))
    took_ms = [
        (seen - sent) * 1000
        for session_id, there in by_session.items()
        for reader in there
        for sent, seen in zip(sent_at[session_id], reader.seen_at, strict=True)
    ]
    return Taken(quantiles(took_ms, n=100, method="inclusive")[98], took_ms)
