"""Where one request is measured: a server and a worker of its own that have done a little of everything."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import LiteralString
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from bench import archives
from bench.case import BenchError, Ground
from bench.costs.meter import Costs, Meter, until_idle
from bench.server import Caller, Server, serving
from bench.wire import request

GZIP = "application/gzip"
# What takes longer is measured up to here.
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_KEPT_BYTES = 64 * 1024
_POSTMASTER = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer"
_BACKENDS = """
SELECT pid FROM pg_stat_activity
WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""


class Answer(Struct, frozen=True):
    status: int
    # The beginning of the body: a client that keeps 200 MiB would only slow itself down.
    body: bytes
    received_bytes: int


class Measured(Struct, frozen=True):
    # Status, or why there was none.
    answer: str
    seconds: float
    # Whether the work that follows the answer ended in time.
    done: bool
    costs: Costs


class Stage:
    def __init__(self, server: Server, caller: Caller, meter: Meter, worker_pid: int) -> None:
        self.server = server
        self.caller = caller
        self._meter = meter
        self._worker_pid = worker_pid
        self.result: Measured | None = None

    def request(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        """Bytes are sent as an archive, anything else as JSON."""
        key = self.server.key
        if isinstance(body, bytes):
            return request(method, path, key, body, GZIP, **headers)
        return request(method, path, key, b"" if body is None else msgspec.json.encode(body), **headers)

    async def new_session(self) -> UUID:
        return (await self.caller.new_sessions(1))[0]

    async def new_skill(self, *bundles: bytes) -> str:
        """The path of a skill with these versions."""
        skill = f"/v1/skills/{(await self.caller.new_skills(1))[0]}"
        for archive in bundles:
            await self.caller.post(f"{skill}/versions", archive, GZIP)
        return skill

    async def send(self, sent: bytes, *, until_seen: tuple[bytes, int] | None = None) -> Answer:
        """`until_seen`: for a stream, which has no end: read until the text has come so many times."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=1024 * 1024)
        try:
            writer.write(sent)
            head = await reader.readuntil(_HEAD_END)
            status = int(head[9:12])
            if until_seen is not None and status == 200:
                return Answer(status, b"", await _read_stream(reader, *until_seen))
            found = _LENGTH.search(head)
            return await _read_body(reader, status, int(found[1]) if found else 0)
        finally:
            writer.close()

    async def measure(
        self,
        sent: bytes,
        *,
        until: Callable[[Answer], Awaitable[None]] | None = None,
        until_seen: tuple[bytes, int] | None = None,
    ) -> None:
        """Sends the request to idle processes. `until` waits for the work that follows the answer, which counts."""
        await self.server.settle()
        await asyncio.to_thread(until_idle, [self.server.process_id, self._worker_pid])
        self._meter.start(await self._backends())
        began = time.perf_counter()
        answer: Answer | None = None
        done = True
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await self.send(sent, until_seen=until_seen)
            said = str(answer.status)
        except (TimeoutError, OSError, EOFError) as fault:
            said = type(fault).__name__
        seconds = time.perf_counter() - began
        if until is not None and answer is not None and answer.status < 400:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await until(answer)
            except TimeoutError:
                done = False
        self.result = Measured(said, seconds, done, self._meter.costs(await self._backends()))

    async def until_run_ended(self, answer: Answer) -> None:
        run_id = msgspec.json.decode(answer.body)["run_id"]
        await self._until_none("SELECT FROM runs WHERE id = %s AND state IN ('queued', 'running')", run_id)

    async def until_purged(self, _: Answer) -> None:
        await self._until_none("SELECT FROM deleted_sessions")

    async def _until_none(self, query: LiteralString, *values: object) -> None:
        """By SQL: polling the API would cost it processor time."""
        async with await AsyncConnection.connect(self.server.database_url, autocommit=True) as connection:
            await connection.execute("SET search_path = app")
            while True:
                if await (await connection.execute(query, values)).fetchone() is None:
                    return
                await asyncio.sleep(_LOOK_SECONDS)

    async def _backends(self) -> list[int]:
        return [pid for (pid,) in await self.server.statement(_BACKENDS)]

    async def warm_up(self) -> None:
        """A little of everything: lazy imports and caches are not the cost of a request."""
        await self.caller.warm_up()
        session_id = await self.new_session()
        small = archives.small()
        skill = await self.new_skill(small, archives.restamped(small, 1))
        run = await self.caller.submit(session_id, "demo: slow 20")
        for sent in (
            self.request("POST", f"/v1/runs/{run.run_id}/cancel"),
            self.request("GET", f"/v1/sessions/{session_id}/events"),
            self.request("GET", "/v1/sessions?search=nothing"),
            self.request("GET", "/v1/audit-events?action=nothing"),
            self.request("GET", "/v1/activity"),
            self.request("GET", f"{skill}/versions/1/bundle", Range="bytes=0-3"),
            self.request("GET", f"{skill}/versions/1/file?path=SKILL.md"),
            self.request("GET", f"{skill}/diff?base=1&head=2"),
            self.request("DELETE", f"/v1/sessions/{session_id}"),
        ):
            answer = await self.send(sent)
            if answer.status >= 400:
                raise BenchError(f"an answer of {answer.status}: {answer.body.decode()}")
        await self._until_none("SELECT FROM deleted_sessions")


@asynccontextmanager
async def open_stage(ground: Ground) -> AsyncIterator[Stage]:
    async with serving(ground) as server, server.caller() as caller:
        # Its work between requests is not the cost of one.
        await server.statement("ALTER SYSTEM SET autovacuum = off")
        await server.statement("SELECT pg_reload_conf()")
        ((postmaster,),) = await server.statement(_POSTMASTER)
        with server.worker(MODEL_DEMO_PAUSE_SECONDS=0) as worker:
            stage = Stage(server, caller, Meter(server.process_id, worker.pid, postmaster), worker.pid)
            await stage.warm_up()
            yield stage


async def _read_body(reader: asyncio.StreamReader, status: int, length: int) -> Answer:
    kept, received = b"", 0
    while received < length:
        data = await reader.read(1024 * 1024)
        if not data:
            raise EOFError
        received += len(data)
        kept += data[: max(0, _KEPT_BYTES - len(kept))]
    return Answer(status, kept, received)


async def _read_stream(reader: asyncio.StreamReader, text: bytes, times: int) -> int:
    received, seen, tail = 0, 0, b""
    while seen < times:
        data = await reader.read(1024 * 1024)
        if not data:
            raise EOFError
        received += len(data)
        seen += (tail + data).count(text)
        # Where the text is cut in two. Shorter than the text, so nothing is counted twice.
        tail = data[-(len(text) - 1) :]
    return received
