"""`make growth`: how much each table grows for a run, and how fast retention deletes it again.

The figures of docs/run/retention.md. Sizes do not depend on the speed of the machine.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import LiteralString
from uuid import UUID, uuid4

import msgspec
import uvloop
from msgspec import Struct
from rich.table import Table

from bench.case import BenchError, Ground
from bench.peers.processor import seconds_of
from bench.report import RESULTS
from bench.run import make_console
from bench.server import Caller, Server, serving
from bench.wire import Wire, request
from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core.settings import BlobSettings, DatabaseSettings, RetentionSettings, Settings
from quarterdeck.db.database import Database
from quarterdeck.retention import delete_expired
from quarterdeck.server import embedded_postgres

RESULT = RESULTS / "growth.json"
RUNS_A_SESSION = 5
_CONNECTIONS = 16
_TIMEOUT_SECONDS = 120.0
_DAY_SECONDS = 24 * 3600
# One step with a call of a tool, then the answer.
_TEXT = "Please look at the release notes and tell me what is missing.\ndemo: steps 1"
# With indexes and what is stored outside of rows.
_SIZES = """
SELECT n.nspname || '.' || c.relname, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'app' AND c.relkind = 'r' ORDER BY 1
"""
_UNFINISHED = """
SELECT (SELECT count(*) FROM runs WHERE state IN ('queued', 'running'))
     + (SELECT count(*) FROM webhook_deliveries WHERE state = 'pending')
"""
_EVENTS = "SELECT count(*) FROM session_events"
_WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
# Retention counts days, so all becomes ten days older.
_AGE = (
    "UPDATE session_events SET created_at = created_at - interval '10 days'",
    "UPDATE runs SET finished_at = finished_at - interval '10 days'",
    "UPDATE actions SET resolved_at = resolved_at - interval '10 days'",
)


class Growth(Struct, frozen=True):
    runs: int
    sessions: int
    events: int
    # Bytes, by table, of all runs.
    tables: dict[str, int]
    wal_bytes: int
    deleted_events: int
    # Processor time of PostgreSQL and of the process that sweeps.
    delete_cpu_seconds: float
    delete_seconds: float


def main() -> None:
    options = _options()
    console = make_console()
    with tempfile.TemporaryDirectory(prefix="qd-growth-") as folder:
        growth = uvloop.run(_measure(Path(folder), options.sessions))
    RESULTS.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(growth)) + b"\n")
    console.print(_table(growth))
    console.print(
        f"{growth.runs:,} runs in {growth.sessions:,} sessions, {growth.events / growth.runs:.1f} events a run,"
        f" WAL {growth.wal_bytes / growth.runs:,.0f} bytes a run."
    )
    console.print(
        f"Retention deleted {growth.deleted_events:,} events with their runs in {growth.delete_seconds:.1f} s,"
        f" {1000 * growth.delete_cpu_seconds / growth.runs:.2f} ms of a core a run with VACUUM. Written to {RESULT}."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How much each table grows for a run.")
    parser.add_argument("--sessions", type=int, default=1000, help=f"each with {RUNS_A_SESSION} runs (default 1000)")
    return parser.parse_args()


async def _measure(folder: Path, sessions: int) -> Growth:
    with embedded_postgres.running(folder) as url:
        ground = Ground(url, folder, lambda _: None)
        settings = {"WEBHOOK_ALLOW_PRIVATE_ADDRESSES": "true", "WEBHOOK_ALLOW_HTTP": "true"}
        async with _receiver() as port, serving(ground, **settings) as server:
            with server.worker(MODEL_DEMO_PAUSE_SECONDS=0, **settings):
                async with server.caller() as caller:
                    await caller.warm_up()
                    hook = {"url": f"http://127.0.0.1:{port}/", "events": ["run.succeeded"]}
                    await caller.post("/v1/webhooks", msgspec.json.encode(hook))
                await server.settle()
                before, wal, events = await _sizes(server), await _number(server, _WAL), await _number(server, _EVENTS)
                await _load(server, sessions)
                wal = await _number(server, _WAL) - wal
            after = await _sizes(server)
            grown = {name: size - before[name] for name, size in after.items() if size > before[name]}
            events = await _number(server, _EVENTS) - events
            deleted, cpu_seconds, seconds = await _delete(server)
    return Growth(sessions * RUNS_A_SESSION, sessions, events, grown, wal, deleted, cpu_seconds, seconds)


@asynccontextmanager
async def _receiver() -> AsyncIterator[int]:
    """Answers every webhook with 204."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _load(server: Server, sessions: int) -> None:
    """Each session is created by a request, and gets one input after the other, each with an Idempotency-Key."""
    numbers = iter(range(sessions))
    await asyncio.gather(*(_talk(server, numbers) for _ in range(_CONNECTIONS)))
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while await _number(server, _UNFINISHED):
        if time.monotonic() > deadline:
            raise BenchError("runs or deliveries take too long")
        await asyncio.sleep(0.1)


async def _talk(server: Server, numbers: Iterator[int]) -> None:
    wire = await Wire.connect(server.port)
    caller = Caller(server, wire)
    for _ in numbers:
        (session_id,) = await caller.new_sessions(1)
        for _ in range(RUNS_A_SESSION):
            run_id = await _submit(server, wire, session_id)
            await caller.until_ended(run_id)
    wire.close()


async def _submit(server: Server, wire: Wire, session_id: UUID) -> UUID:
    body = msgspec.json.encode({"type": "input", "text": _TEXT})
    path = f"/v1/sessions/{session_id}/events"
    answer = await wire.ask(request("POST", path, server.key, body, Idempotency_Key=str(uuid4())))
    if answer.status != 200:
        raise BenchError(f"an answer of {answer.status}: {answer.body.decode()}")
    return UUID(msgspec.json.decode(answer.body)["run_id"])


async def _delete(server: Server) -> tuple[int, float, float]:
    for statement in _AGE:
        await server.statement(statement)
    await server.settle()
    settings = Settings(
        database=DatabaseSettings(url=server.database_url),
        retention=RetentionSettings(run_days=5),
    )
    database = Database(server.database_url, settings.database)
    await database.open()
    try:
        postgres_id = int((server.folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        before, began = seconds_of([postgres_id]) + time.process_time(), time.monotonic()
        deleted = await delete_expired(database, open_blob_store(BlobSettings(), server.folder), settings)
        # Otherwise done by autovacuum.
        await server.statement("VACUUM session_events, conversation_words, runs")
        cpu_seconds = seconds_of([postgres_id]) + time.process_time() - before
        return deleted.events, cpu_seconds, time.monotonic() - began
    finally:
        await database.close()


async def _sizes(server: Server) -> dict[str, int]:
    return dict(await server.statement(_SIZES))


async def _number(server: Server, statement: LiteralString) -> int:
    ((number,),) = await server.statement(statement)
    return int(number)


def _table(growth: Growth) -> Table:
    table = Table(title="Growth")
    for name in ("table", "bytes a run", "a day at 1 run/s", "a day at 100 runs/s"):
        table.add_column(name, justify="left" if name == "table" else "right")
    total = sum(growth.tables.values())
    rows = sorted(growth.tables.items(), key=lambda one: -one[1])
    for name, size in [*rows, ("total", total)]:
        a_run = size / growth.runs
        a_day = a_run * _DAY_SECONDS
        table.add_row(name, f"{a_run:,.0f}", f"{a_day / 2**20:,.1f} MiB", f"{100 * a_day / 2**30:,.2f} GiB")
    return table


if __name__ == "__main__":
    main()
