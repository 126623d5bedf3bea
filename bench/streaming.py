"""Runs whose provider streams 20 chunks a second: what a second of a run costs, and how long a chunk takes to a reader.

The provider and the readers live in the bench's own process. Its processor time does not count.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles
from time import monotonic, perf_counter
from typing import cast
from uuid import UUID

import psutil
from msgspec import Struct
from psycopg import AsyncConnection

from bench.case import BenchError, Ground, Taken
from bench.peers.processor import seconds_of
from bench.provider import provider
from bench.server import Caller, Server, serving
from bench.wire import request

MODEL = "openai-chat:bench"
CHUNKS_A_SECOND = 20
# The usual length of a chunk, beside the moment at which it was sent.
_WORDS = " some words"
_STAMP = re.compile(rb"@(\d+\.\d{6})@")
_START_SECONDS = 60.0
# For the starts of the runs to be over.
_SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_LAST_SECONDS = 1.0


class Streaming(Struct):
    """A provider whose answers go on until `over` is set."""

    server: Server
    over: asyncio.Event
    answers: int = 0
    # The moments of all chunks.
    sent: list[float] = []

    async def pieces(self) -> AsyncIterator[str]:
        self.answers += 1
        try:
            # Answers do not begin at the same moment.
            await asyncio.sleep(random.random() / CHUNKS_A_SECOND)  # noqa: S311 - spreads load, guards nothing
            while not self.over.is_set():
                self.sent.append(perf_counter())
                yield f"{_WORDS}@{self.sent[-1]:.6f}@"
                await asyncio.sleep(1 / CHUNKS_A_SECOND)
        finally:
            self.answers -= 1


class DeltaReader(asyncio.Protocol):
    """Notes how long each chunk took."""

    def __init__(self) -> None:
        self.opened = asyncio.get_running_loop().create_future()
        # The moment of sending and that of arrival.
        self.chunks: list[tuple[float, float]] = []
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
        end = 0
        for found in _STAMP.finditer(text):
            self.chunks.append((float(found[1]), now))
            end = found.end()
        # A stamp may be cut anywhere.
        self._rest = text[end:][-32:]

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def with_models(ground: Ground) -> AsyncIterator[Server]:
    """The API only checks that there is a provider. The address is that of the worker's."""
    async with serving(ground, MODEL_OPENAI_BASE_URL="http://127.0.0.1:1/v1") as server:
        yield server


@asynccontextmanager
async def _reading(server: Server, sessions: Sequence[UUID]) -> AsyncIterator[list[DeltaReader]]:
    loop = asyncio.get_running_loop()
    readers: list[DeltaReader] = []
    try:
        for session_id in sessions:
            _, reader = await loop.create_connection(DeltaReader, "127.0.0.1", server.port)
            readers.append(reader)
            reader.ask(server, session_id)
        async with asyncio.timeout(_START_SECONDS):
            await asyncio.gather(*(reader.opened for reader in readers))
        yield readers
    finally:
        for reader in readers:
            reader.close()


class Window(Struct, frozen=True):
    """What was seen while all runs streamed."""

    # Processor time of the API, the worker and PostgreSQL, for each second of a run.
    shares_ms: list[float]
    # What they use without runs, for each second.
    idle_ms: list[float]
    way_ms: list[float]


async def stream(server: Server, runs: int, seconds: float, *, read: bool) -> Window:
    over = asyncio.Event()
    streaming = Streaming(server, over)
    async with provider(streaming.pieces) as url, server.caller() as caller:
        settings = {"RUN_ACTIVE_PER_WORKSPACE": runs, "WORKER_CONCURRENCY": runs, "MODEL_OPENAI_BASE_URL": url}
        with server.worker(**settings) as worker:
            await caller.warm_up(MODEL)
            processes = await _processes(server, worker.pid)
            idle_ms = await processes.used_ms(seconds / 2)
            sessions = await caller.new_sessions(runs, MODEL)
            async with _reading(server, sessions if read else ()) as readers:
                run_ids = [(await caller.submit(session_id, "Go.")).run_id for session_id in sessions]
                try:
                    await _until_all_stream(streaming, runs)
                    return await _window(processes, idle_ms, runs, seconds, readers, streaming.sent)
                finally:
                    over.set()
                    await _until_ended(caller, run_ids)


async def _until_all_stream(streaming: Streaming, runs: int) -> None:
    deadline = monotonic() + _START_SECONDS
    while streaming.answers < runs:
        if monotonic() > deadline:
            raise BenchError(f"{streaming.answers} of {runs} runs stream")
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.sleep(_SETTLE_SECONDS)


class Processes(Struct, frozen=True):
    """The API, the worker and PostgreSQL."""

    ids: tuple[int, int, int]

    async def used_ms(self, seconds: float) -> list[float]:
        """Processor time of each, for each second."""
        began, before = perf_counter(), [seconds_of([one]) for one in self.ids]
        await asyncio.sleep(seconds)
        passed, after = perf_counter() - began, [seconds_of([one]) for one in self.ids]
        return [1000 * (end - start) / passed for start, end in zip(before, after, strict=True)]


async def _processes(server: Server, worker: int) -> Processes:
    async with await AsyncConnection.connect(server.database_url, autocommit=True) as connection:
        return Processes((server.process_id, worker, psutil.Process(connection.info.backend_pid).ppid()))


async def _window(
    processes: Processes,
    idle_ms: list[float],
    runs: int,
    seconds: float,
    readers: Sequence[DeltaReader],
    sent: list[float],
) -> Window:
    began = perf_counter()
    used_ms = await processes.used_ms(seconds)
    ended = perf_counter()
    shares_ms = [(used - idle) / runs for used, idle in zip(used_ms, idle_ms, strict=True)]
    # For chunks that are still on their way.
    await asyncio.sleep(_LAST_SECONDS)
    way_ms = [1000 * (arrived - sent) for reader in readers for sent, arrived in reader.chunks if began < sent < ended]
    expected = sum(began < moment < ended for moment in sent)
    if readers and len(way_ms) < expected:
        raise BenchError(f"readers got {len(way_ms)} of {expected} chunks")
    return Window(shares_ms, idle_ms, way_ms)


async def _until_ended(caller: Caller, run_ids: Sequence[UUID]) -> None:
    for run_id in run_ids:
        await caller.until_ended(run_id, _START_SECONDS)


def p95(way_ms: Sequence[float]) -> float:
    return quantiles(way_ms, n=20, method="inclusive")[18]


async def cost(server: Server, runs: int, seconds: float, *, read: bool) -> Taken:
    """Processor time of a streamed second of one run, in ms: beyond what the processes use without runs."""
    window = await stream(server, runs, seconds, read=read)
    api, worker, postgres = window.shares_ms
    notes = {
        "API, ms": api,
        "worker, ms": worker,
        "PostgreSQL, ms": postgres,
        "all three without runs, ms a second": sum(window.idle_ms),
    }
    if read:
        notes["a chunk's way, p95, ms"] = p95(window.way_ms)
    return Taken(api + worker + postgres, notes=notes)
