"""kill -9 of workers, API processes and PostgreSQL at every point between a tool call and the end of its run: no answer
is lost, no call takes effect twice, and every run ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from msgspec import Struct
from psycopg.conninfo import make_conninfo

from quarterdeck.server.data_directory import SOCKET_NAME
from tests.fault.postgres import Postgres, own_postgres
from tests.fault.stand_in import Brake
from tests.fleet.action_invariants import check_actions
from tests.fleet.invariants import Action, Entry, Run, Session
from tests.fleet.proxy import Proxy
from tests.processes import serving_pids
from tests.workers import Worker, check_log, eventually, log_of, take_for_dead, working
from tests.world import PATIENT, STOP_SECONDS, Server, World, clone_database, drop_database, serving

pytestmark = pytest.mark.long

# What a run writes under the lock of its session when it adds a note, in this order. `answer` is the write of the API.
WRITES = (
    "begin",
    "store call",
    "wait",
    "answer",
    "begin again",
    "start",
    "note",
    "result",
    "take again",
    "store answer",
)
ALLOW = {"decision": "allow"}
# Holds the commit of every answer, with its locks.
HOLD_ANSWERS = """
CREATE FUNCTION app.hold_answer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hold_answer AFTER UPDATE ON app.actions DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 'resolved') EXECUTE FUNCTION app.hold_answer();
"""
RELEASE_ANSWERS = "DROP TRIGGER hold_answer ON app.actions"
IN_COMMIT = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """For tests that crash it or reach it over a proxy."""
    with own_postgres("waits") as postgres:
        yield postgres


class Note(Struct, frozen=True):
    """A session with a run that is asked to add a note."""

    session_id: str
    run_id: str


async def ask_for_note(world: World) -> Note:
    session_id = await world.new_session()
    answer = await world.submit(session_id, "note: Deck.")
    assert answer.status_code == 200, answer.text
    return Note(session_id, answer.json()["run_id"])


async def open_action(world: World, note: Note) -> str:
    """The only action that the run waits for."""

    async def look() -> list[str]:
        waiting_for: list[str] = (await world.get(f"/v1/runs/{note.run_id}")).json()["waiting_for"]
        return waiting_for

    (action_id,) = await eventually(look)
    return str(action_id)


async def resolve(world: World, action_id: str, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await world.post(f"/v1/actions/{action_id}/resolve", body, headers=headers)


async def ended(world: World, *notes: Note) -> None:
    """Answer whatever the runs wait for until all have succeeded: a call whose outcome is unknown is repeated only if
    the log has no note of it."""

    async def look() -> bool:
        runs = [(await world.get(f"/v1/runs/{note.run_id}")).json() for note in notes]
        for note, run in zip(notes, runs, strict=True):
            for action_id in run["waiting_for"]:
                types = [entry["type"] for entry in await log_of(world, note.session_id)]
                action = (await world.get(f"/v1/actions/{action_id}")).json()
                unknown = {"decision": "done" if "note" in types else "retry"}
                body = unknown if action["kind"] == "unknown_outcome" else ALLOW
                answer = await resolve(world, action_id, body)
                assert answer.status_code in (200, 503), answer.text
        assert all(run["state"] in ("queued", "running", "waiting", "succeeded") for run in runs), runs
        return all(run["state"] == "succeeded" for run in runs)

    await eventually(look)


async def check(world: World, note: Note) -> list[dict[str, Any]]:
    """All promises, for a run that has ended: one note, one result, every action in the log with its end."""
    entries = await log_of(world, note.session_id)
    check_log(entries)
    runs = await world.fetch(
        "SELECT id::text, state, last_input, consumed_through FROM runs WHERE id = %s", note.run_id
    )
    query = "SELECT id::text, run_id::text, kind, state, call_id, resolution FROM actions WHERE run_id = %s ORDER BY id"
    session = Session(
        note.session_id,
        [Entry(entry["id"], entry["run_id"], entry["type"], entry["data"]) for entry in entries],
        [Run(*row) for row in runs],
        [Action(*row) for row in await world.fetch(query, note.run_id)],
    )
    assert list(check_actions(session, [])) == []
    types = [entry["type"] for entry in entries]
    assert (types.count("note"), types.count("tool.result"), types.count("run.succeeded")) == (1, 1, 1), types
    assert [action.kind for action in session.actions].count("approval") == 1
    return entries


async def pass_answer(world: World, brake: Brake, action_id: str) -> None:
    """The worker cannot begin before the brake lets it."""
    answering = asyncio.create_task(resolve(world, action_id, ALLOW))
    await brake.let_pass()
    assert (await answering).status_code == 200


async def walk_to(brake: Brake, write: str) -> None:
    """From the answer until the worker stands right before this write."""
    for _ in WRITES[WRITES.index("begin again") : WRITES.index(write)]:
        await brake.let_pass()
    await brake.waiting()


def kill_worker(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)
    worker.process.wait()


# Calls that were started and whether a person has to say what became of them.
WORKER_POINTS = {
    "wait": (1, False),
    "no worker": (1, False),
    "begin again": (1, False),
    "start": (1, False),
    # Nobody can tell the next two apart: the tool was started, and the worker is gone.
    "note": (2, True),
    "result": (1, True),
    "take again": (1, False),
    "store answer": (1, False),
}


async def test_worker_killed_before_any_of_its_writes(world: World, server: Server) -> None:
    """A session for each point, all in one worker, which is killed when it stands before all those writes."""
    settings = {"DATABASE_POOL_CONNECTIONS": 3 * len(WORKER_POINTS)}
    notes = {point: await ask_for_note(world) for point in WORKER_POINTS}
    async with AsyncExitStack() as stack:
        not_waiting = await stack.enter_async_context(Brake(world, notes["wait"].session_id))
        brakes = [not_waiting]
        with working(server.database_url, server.data_dir, **settings) as worker:
            for _ in WRITES[: WRITES.index("wait")]:
                await not_waiting.let_pass()
            actions = {point: await open_action(world, note) for point, note in notes.items() if point != "wait"}
            walks = []
            for point in WORKER_POINTS:
                if point not in ("wait", "no worker"):
                    brake = await stack.enter_async_context(Brake(world, notes[point].session_id))
                    brakes.append(brake)
                    await pass_answer(world, brake, actions[point])
                    walks.append(walk_to(brake, point))
            await asyncio.gather(not_waiting.waiting(), *walks)
            kill_worker(worker)
        for brake in brakes:
            await brake.drop_waiting()
    before = {point: await log_of(world, note.session_id) for point, note in notes.items()}
    assert (await resolve(world, actions["no worker"], ALLOW)).status_code == 200
    await take_for_dead(world)
    with working(server.database_url, server.data_dir, **settings):
        await ended(world, *notes.values())
    for point, (starts, asked) in WORKER_POINTS.items():
        entries = await check(world, notes[point])
        assert entries[: len(before[point])] == before[point] or point == "no worker", point
        assert sum(entry["type"] == "tool.started" for entry in entries) == starts, point
        unknown = [entry for entry in entries if entry["data"].get("kind") == "unknown_outcome"]
        assert len(unknown) == 2 * asked, point


@pytest.fixture
async def held_answers(world: World) -> AsyncIterator[None]:
    await world.execute(HOLD_ANSWERS)
    yield
    await world.execute(RELEASE_ANSWERS)
    await world.execute("DROP FUNCTION app.hold_answer")


async def test_api_killed_before_and_during_the_commit_of_an_answer(
    world: World, server: Server, tmp_path: Path, held_answers: None
) -> None:
    """What was not committed can be answered again, and so can what was: it is stored once."""
    with working(server.database_url, server.data_dir):
        locked, keyed, unkeyed = [await ask_for_note(world) for _ in range(3)]
        actions = {note: await open_action(world, note) for note in (locked, keyed, unkeyed)}
        with serving(server.database_url, tmp_path, **PATIENT) as doomed:
            async with (
                httpx.AsyncClient(base_url=doomed.url, timeout=60) as http,
                Brake(world, locked.session_id) as brake,
            ):
                other = World(world.database_url, http)
                other.key = world.key
                sent = [
                    asyncio.create_task(resolve(other, actions[note], ALLOW, key))
                    for note, key in ((locked, "locked"), (keyed, "keyed"), (unkeyed, None))
                ]
                await brake.waiting()
                await eventually(lambda: _count(world, IN_COMMIT, 2))
                for pid in (doomed.pid, *serving_pids(doomed)):
                    os.kill(pid, signal.SIGKILL)
                answers = await asyncio.gather(*sent, return_exceptions=True)
                assert all(isinstance(answer, httpx.TransportError) for answer in answers)
        await eventually(lambda: _count(world, IN_COMMIT, 0))
        states = [
            (await world.get(f"/v1/actions/{actions[note]}")).json()["state"] for note in (locked, keyed, unkeyed)
        ]
        assert states == ["open", "resolved", "resolved"]
        for note, key, replayed in ((locked, "locked", None), (keyed, "keyed", "true"), (unkeyed, None, None)):
            again = await resolve(world, actions[note], ALLOW, key)
            assert (again.status_code, again.headers.get("idempotency-replayed")) == (200, replayed), again.text
            assert (await resolve(world, actions[note], {"decision": "deny"})).status_code == 409
        await ended(world, locked, keyed, unkeyed)
    for note in (locked, keyed, unkeyed):
        types = [entry["type"] for entry in await check(world, note)]
        assert (types.count("action.resolved"), types.count("tool.started")) == (1, 1)


async def _count(world: World, query: str, count: int) -> bool:
    return len(await world.fetch(query)) == count


# A worker that does as it was shipped, but for a lease that is soon over.
CRASHING = {"WORKER_LEASE_SECONDS": 2, "DATABASE_STATEMENT_SECONDS": 10, "DATABASE_POOL_WAIT_SECONDS": 2}


async def test_postgres_crashes_between_call_and_answer(postgres: Postgres, tmp_path: Path) -> None:
    """A session stands before each of the writes; one answer is acknowledged, and another is being committed."""
    points = ("wait", "begin again", "start", "note", "result", "take again")
    with serving(postgres.url, tmp_path, **PATIENT) as server, working(postgres.url, tmp_path, **CRASHING):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(postgres.url, http)
            notes = {point: await ask_for_note(world) for point in (*points[1:], "acknowledged", "committing")}
            actions = {point: await open_action(world, note) for point, note in notes.items()}
            async with AsyncExitStack() as stack:
                walks = []
                for point in points[1:]:
                    brake = await _brake(stack, world, notes[point])
                    await pass_answer(world, brake, actions[point])
                    walks.append(walk_to(brake, point))
                notes["wait"] = await ask_for_note(world)
                await asyncio.gather(*walks)
                await world.execute(HOLD_ANSWERS)
                committing = asyncio.create_task(resolve(world, actions["committing"], ALLOW, "committing"))
                await eventually(lambda: _count(world, IN_COMMIT, 1))
                await world.execute("ALTER TABLE app.actions DISABLE TRIGGER hold_answer")
                assert (await resolve(world, actions["acknowledged"], ALLOW)).status_code == 200
                await asyncio.to_thread(postgres.stop, signal.SIGQUIT)
            await asyncio.to_thread(postgres.start)
            assert (await committing).status_code in (200, 500, 503)
            acknowledged = await eventually(lambda: _action(world, actions["acknowledged"]))
            assert acknowledged["state"] == "resolved"
            again = await eventually(lambda: _resolved(world, actions["committing"], "committing"))
            assert again["state"] == "resolved"
            await ended(world, *notes.values())
            for note in notes.values():
                await check(world, note)


# Holds the commit of an event of this type.
HOLD_EVENTS = """
CREATE FUNCTION app.hold_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hold_event AFTER INSERT ON app.session_events DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.type = '{}') EXECUTE FUNCTION app.hold_event();
"""
RELEASE_EVENTS = "DROP TRIGGER hold_event ON app.session_events; DROP FUNCTION app.hold_event"
LOST_COMMITS = ("action.required", "tool.started", "note", "tool.result")


async def test_commits_whose_confirmation_was_lost(postgres: Postgres, tmp_path: Path) -> None:
    """The worker cannot know whether its write was stored. It was: everything is in the log once, and a note is not
    stored again."""
    proxy = await Proxy.started(str(postgres.cluster.socket_dir / SOCKET_NAME))
    proxied_url = make_conninfo(postgres.url, host="127.0.0.1", port=proxy.port)
    with serving(postgres.url, tmp_path, **PATIENT) as server, working(proxied_url, tmp_path, **CRASHING) as worker:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(postgres.url, http)
            for event_type in LOST_COMMITS:
                await world.execute(HOLD_EVENTS.format(event_type))
                note = await ask_for_note(world)
                if event_type != "action.required":
                    assert (await resolve(world, await open_action(world, note), ALLOW)).status_code == 200
                await eventually(lambda: _count(world, IN_COMMIT, 1))
                proxy.cut()
                await world.execute(RELEASE_EVENTS)
                await ended(world, note)
                kinds = [entry["data"].get("kind") for entry in await check(world, note)]
                assert event_type != "note" or "unknown_outcome" in kinds
        # Here, and not at the end of the block, which would stop the proxy meanwhile.
        worker.signal(signal.SIGTERM)
        await asyncio.to_thread(worker.process.wait, STOP_SECONDS)
    await proxy.close()


async def _brake(stack: AsyncExitStack, world: World, note: Note) -> Brake:
    """One that may lose its connection."""
    brake = Brake(world, note.session_id)
    await brake.__aenter__()

    async def leave() -> None:
        with suppress(psycopg.OperationalError):
            await brake.__aexit__()

    stack.push_async_callback(leave)
    return brake


async def _action(world: World, action_id: str) -> dict[str, Any] | None:
    answer = await world.get(f"/v1/actions/{action_id}")
    action: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
    return action


async def _resolved(world: World, action_id: str, key: str) -> dict[str, Any] | None:
    answer = await resolve(world, action_id, ALLOW, key)
    action: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
    return action
