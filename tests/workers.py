"""Worker processes for tests, and waiting for what they do."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from msgspec import Struct

from quarterdeck.core.settings import RunSettings
from quarterdeck.db.database import Database
from quarterdeck.models.model import NO_OPTIONS, AssistantTurn, Step
from quarterdeck.runs import lifecycle
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import RunSetup
from tests.fork_server import Process, start_qd
from tests.world import PATIENT, START_SECONDS, STOP_SECONDS, World, database_urls, process_logs

# A long lease: a worker must not count as dead because the machine is busy. Tests use `take_for_dead`.
# Slow runs outlast their tests.
QUICK = PATIENT | {
    "WORKER_LEASE_SECONDS": 60,
    "WORKER_SWEEP_SECONDS": 0.3,
    "MODEL_DEMO_PAUSE_SECONDS": 0,
    "MODEL_DEMO_SLOW_SECONDS": 600,
}


# For tests that begin attempts themselves.
SETUP = RunSetup(model="demo", settings=NO_OPTIONS, instructions=None, skills=[], client_tools=[])

STEP = Step(AssistantTurn("", []), input_tokens=1, output_tokens=1)


async def begin_demo_run(database: Database, run_id: UUID, settings: RunSettings | None = None) -> Lease | None:
    found = await lifecycle.find(database, run_id)
    settings = RunSettings() if settings is None else settings
    return None if found is None else await lifecycle.begin(database, run_id, found, SETUP, settings, again=False)


class Worker(Struct, frozen=True):
    process: Process
    log: Path

    def signal(self, order: signal.Signals) -> None:
        os.kill(self.process.pid, order)


@contextmanager
def working(database_url: str, data_dir: Path, **settings: object) -> Iterator[Worker]:
    """Run `qd worker` as a process. `database_url` is the owner's. `settings` are environment variables without their
    prefix."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUARTERDECK_")}
    environment |= database_urls(database_url) | {"QUARTERDECK_SERVER_DATA_DIR": str(data_dir)}
    environment |= {f"QUARTERDECK_{name}": str(value) for name, value in (QUICK | settings).items()}
    log = data_dir / f"worker-{time.monotonic_ns()}.log"
    process_logs.append(log)
    with log.open("wb") as output:
        process = start_qd(["worker"], environment, output)
    try:
        yield Worker(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def eventually(look: Callable[[], Awaitable[Any]], seconds: float = START_SECONDS) -> Any:
    """Call `look` until it returns something true, and return that."""
    start = time.monotonic()
    while True:
        found = await look()
        if found:
            return found
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds} seconds"
        # Most looks send a request. Looking less often after a while leaves the processor to what is waited for.
        await asyncio.sleep(min(0.25, max(0.02, waited / 10)))


async def ended(world: World, run_id: str, seconds: float = START_SECONDS) -> dict[str, Any]:
    """Wait until the run has ended."""

    async def look() -> dict[str, Any] | None:
        run: dict[str, Any] = (await world.get(f"/v1/runs/{run_id}")).json()
        return run if run["state"] in ("succeeded", "failed", "cancelled") else None

    found: dict[str, Any] = await eventually(look, seconds)
    return found


async def take_for_dead(world: World) -> None:
    """Let all leases expire. A living worker renews its own within a quarter of the lease; until then its runs
    may be given to others."""
    await world.execute("UPDATE workers SET last_heartbeat = now() - interval '1 hour'")


@asynccontextmanager
async def losing_notes(world: World, session_id: str) -> AsyncIterator[None]:
    """The database fails when `add_note` stores its note: the call has started, and its outcome is unknown."""
    await world.execute(
        "CREATE FUNCTION app.lose_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'lost'; END $$"
    )
    await world.execute(
        f"CREATE TRIGGER lose_note BEFORE INSERT ON app.session_events FOR EACH ROW "
        f"WHEN (NEW.type = 'note' AND NEW.session_id = '{UUID(session_id)}') EXECUTE FUNCTION app.lose_note()"
    )
    try:
        yield
    finally:
        await world.execute("DROP FUNCTION app.lose_note CASCADE")


async def started(world: World, session_id: str) -> None:
    async def look() -> bool:
        return bool(await world.fetch("SELECT FROM runs WHERE session_id = %s AND started_at IS NOT NULL", session_id))

    await eventually(look)


async def held_up(world: World, count: int = 1) -> None:
    """Wait until so many connections wait for a lock in this database."""

    async def look() -> bool:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return len(await world.fetch(query)) >= count

    await eventually(look)


async def at_rest(world: World, *session_ids: str, seconds: float = START_SECONDS) -> None:
    """Wait until no run of these sessions is active or pending."""

    async def look() -> bool:
        ids = [UUID(one) for one in session_ids]
        query = "SELECT FROM runs WHERE session_id = ANY(%s) AND finished_at IS NULL"
        return not await world.fetch(query, ids)

    await eventually(look, seconds)


async def log_of(world: World, session_id: str) -> list[dict[str, Any]]:
    """All entries of the session's log, read page by page."""
    entries: list[dict[str, Any]] = []
    after = 0
    while True:
        answer: httpx.Response = await world.get(f"/v1/sessions/{session_id}/events?limit=200&after={after}")
        page = answer.json()
        entries += page["items"]
        if page["next_cursor"] is None:
            return entries
        after = page["next_cursor"]


def check_log(entries: list[dict[str, Any]], *, all_ended: bool = True) -> None:
    """Invariants of every log: each input ends once, runs do not overlap, every call has one result."""
    accepted = [entry["data"]["input_id"] for entry in entries if entry["type"] == "input.accepted"]
    consumed = [entry["data"]["input_id"] for entry in entries if entry["type"] == "input.consumed"]
    discards = [entry["data"] for entry in entries if entry["type"] == "input.discarded"]
    # An input that is dropped was consumed before, by a run that failed.
    discarded = [data["input_id"] for data in discards if data["reason"] != "dropped"]
    assert len(set(accepted)) == len(accepted)
    assert len(set(consumed + discarded)) == len(consumed + discarded), "an input ended twice"
    if all_ended:
        assert set(consumed + discarded) == set(accepted), "an input was lost"
    active: str | None = None
    for entry in entries:
        if entry["type"] == "run.started":
            assert active in (None, entry["run_id"]), "two runs at once"
            active = entry["run_id"]
        elif entry["type"] in ("run.succeeded", "run.failed", "run.cancelled"):
            active = None
    results = [entry["data"]["call_id"] for entry in entries if entry["type"] == "tool.result"]
    calls = [entry["data"]["call_id"] for entry in entries if entry["type"] == "tool.call"]
    assert len(set(results)) == len(results), "a finished call was carried out again"
    assert set(results) <= set(calls)
