"""Workers that are lost during a call with effects, and restarts while a run waits: no effect happens twice."""

import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.fault.stand_in import Brake
from tests.fault.waiting import (
    new_session,
    notes_of,
    open_actions,
    resolve,
    results_of,
    start,
    succeeded,
    types_of,
)
from tests.workers import eventually, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

NOTE_ALLOWED = {"tool_policy": {"add_note": "allow"}}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.mark.long
async def test_a_worker_is_killed_during_a_call(world: World, server: Server) -> None:
    """Before or after the effect. A person decides, and the effect happens as often as the person says."""
    cases = [
        ("tool.started", {"decision": "retry"}, 1, "The note is stored."),
        ("tool.started", {"decision": "failed"}, 0, "Error: it was not carried out."),
        ("note", {"decision": "done"}, 1, "It was carried out."),
    ]
    sessions = [await new_session(world, **NOTE_ALLOWED) for _ in cases]
    runs = [await start(world, session_id, "note: x") for session_id in sessions]
    async with AsyncExitStack() as stack:
        brakes = [await stack.enter_async_context(Brake(world, session_id)) for session_id in sessions]
        with working(server.database_url, server.data_dir) as first:
            for brake, (event, *_) in zip(brakes, cases, strict=True):
                while event not in await types_of(world, brake.session_id):
                    await brake.let_pass()
                await brake.waiting()
            first.signal(signal.SIGKILL)
            first.process.wait()
    await take_for_dead(world)
    with working(server.database_url, server.data_dir):
        for session_id, run_id, (_, answer, notes, result) in zip(sessions, runs, cases, strict=True):
            [action] = await open_actions(world, run_id)
            assert (action["kind"], action["arguments"]) == ("unknown_outcome", {"text": "x"})
            await resolve(world, action, **answer)
            await succeeded(world, run_id)
            assert await notes_of(world, session_id) == ["x"] * notes
            assert await results_of(world, session_id) == {"add_note": result}
            keys = {entry["data"]["key"] for entry in await log_of(world, session_id) if "key" in entry["data"]}
            assert len(keys) == 1, "every try has the same key"


@pytest.mark.long
async def test_a_superseded_worker_has_no_effect(world: World, server: Server) -> None:
    """It was paused during the call, and the model was told. When it wakes up, it stores nothing."""
    session_id = await new_session(world, **NOTE_ALLOWED)
    # Holds the commit of the start, so that the worker can be paused before it calls the tool.
    await world.execute(
        "CREATE FUNCTION app.hold_commit() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$"
    )
    await world.execute(
        "CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON app.session_events DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (NEW.type = 'tool.started') EXECUTE FUNCTION app.hold_commit()"
    )
    with working(server.database_url, server.data_dir) as sleeper:
        run_id = await start(world, session_id, "note: x")

        async def is_held() -> bool:
            query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
            return bool(await world.fetch(query))

        await eventually(is_held)
        sleeper.signal(signal.SIGSTOP)

        async def has_started() -> bool:
            return "tool.started" in await types_of(world, session_id)

        await eventually(has_started)
        await take_for_dead(world)
        with working(server.database_url, server.data_dir, RUN_UNKNOWN_OUTCOME="tell_model"):
            await succeeded(world, run_id)
        settled = await log_of(world, session_id)
        sleeper.signal(signal.SIGCONT)

        async def gave_up() -> bool:
            return "went on without this attempt" in sleeper.log.read_text()

        await eventually(gave_up)
    assert await log_of(world, session_id) == settled
    assert await notes_of(world, session_id) == []
    assert (await results_of(world, session_id))["add_note"].startswith("The outcome of this call is unknown")


@pytest.mark.long
async def test_everything_restarts_while_a_run_waits(postgres_url: str, template: str, tmp_path: Path) -> None:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path, **PATIENT) as server, working(url, tmp_path):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(url, http)
            session_id = await world.new_session()
            run_id = await start(world, session_id, "note: x")
            [action] = await open_actions(world, run_id)
    with serving(url, tmp_path, **PATIENT) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as world.http:
            assert await open_actions(world, run_id) == [action]
            await world.submit(session_id, "While nobody works.")
            await resolve(world, action, decision="allow")
            with working(url, tmp_path):
                await succeeded(world, run_id)
            assert await notes_of(world, session_id) == ["x"]
    drop_database(postgres_url, url)
