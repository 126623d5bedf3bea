"""Which runs leave their slots, and what a run that waited for too long leaves behind."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import DatabaseSettings, ModelSettings, RunSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs.model import RunSetup
from quarterdeck.worker.run_driver import begin_attempt
from tests.workers import SETUP, begin_demo_run
from tests.world import AS_OWNER, World, app_url

_ADD_JOB = """
INSERT INTO run_jobs (session_id, run_id, taken, workspace_id, ask_at)
VALUES (%s, %s, %s, %s, now() - interval '1 minute')
"""


@pytest.fixture
async def connection(database_url: str) -> "AsyncIterator[AsyncConnection[Any]]":
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        yield connection


async def test_the_newest_run_leaves_and_not_the_one_that_left_before(connection: "AsyncConnection[Any]") -> None:
    """The job of the oldest run is the newest: the run left its slot before and has returned."""
    greedy, neighbour = uuid4(), uuid4()
    oldest, middle, newest = (new_id() for _ in range(3))
    for run_id in (middle, newest, oldest):
        await connection.execute(_ADD_JOB, (uuid4(), run_id, True, greedy))
    await connection.execute(_ADD_JOB, (uuid4(), new_id(), False, neighbour))
    await connection.execute("SELECT ask_runs_to_leave()")
    rows = await (await connection.execute("SELECT run_id FROM run_jobs WHERE leaving")).fetchall()
    assert rows == [(newest,)]


async def _fetch(connection: "AsyncConnection[Any]", count: int) -> list[tuple[int, UUID, UUID]]:
    worker_id = new_id()
    await connection.execute("INSERT INTO workers (id) VALUES (%s)", (worker_id,))
    query = "SELECT id, run_id, workspace_id FROM next_run_jobs(%s, 100, %s)"
    return await (await connection.execute(query, (worker_id, count))).fetchall()


async def test_jobs_are_fetched_together(connection: "AsyncConnection[Any]") -> None:
    """In the order of their runs, never two of a session, and in turns as soon as another workspace waits."""
    first, second, one_session = uuid4(), uuid4(), uuid4()
    runs = [new_id() for _ in range(7)]
    for run_id in runs[:4]:
        await connection.execute(_ADD_JOB, (uuid4(), run_id, False, first))
    assert [run_id for _, run_id, _ in await _fetch(connection, 3)] == runs[:3]
    for run_id in runs[4:6]:
        await connection.execute(_ADD_JOB, (one_session, run_id, False, first))
    assert [run_id for _, run_id, _ in await _fetch(connection, 8)] == runs[3:5]
    assert await _fetch(connection, 8) == [], "the session of the last job has one in progress"
    await connection.execute("DELETE FROM run_jobs WHERE session_id = %s AND taken", (one_session,))
    await connection.execute(_ADD_JOB, (uuid4(), runs[6], False, second))
    assert [workspace for _, _, workspace in await _fetch(connection, 2)] == [second, first]


async def test_a_session_that_changes_before_its_run_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run uses was read before the session was locked: it is read again."""
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "hello")).json()["run_id"]
    models = ["before", "after"]

    async def run_setup(connection: Connection, catalog: ModelCatalog, of_session: UUID) -> RunSetup:
        if models[0] == "before":
            await world.execute("UPDATE sessions SET revision = revision + 1 WHERE id = %s", of_session)
        return replace(SETUP, model=models.pop(0))

    monkeypatch.setattr("quarterdeck.sessions.service.run_setup", run_setup)

    database = Database(app_url(world.database_url), DatabaseSettings())
    await database.open()
    try:
        lease = await begin_attempt(database, ModelCatalog(ModelSettings()), UUID(run_id), RunSettings(), again=False)
    finally:
        await database.close()
    assert lease is not None
    assert (lease.setup.model, lease.attempt, models) == ("after", 1, [])
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert (run["model"], run["inputs_consumed"]) == ("after", 1)


async def test_inputs_of_a_run_that_is_overdue_start_the_next_run(world: World) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "not lost")).json()["run_id"]
    await world.execute("UPDATE runs SET started_at = now() - interval '2 hours' WHERE id = %s", run_id)
    database = Database(app_url(world.database_url), DatabaseSettings())
    await database.open()
    try:
        assert await begin_demo_run(database, UUID(run_id)) is None
    finally:
        await database.close()
    runs = (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"]
    shown = [(run["state"], run["inputs_accepted"], run["inputs_consumed"]) for run in runs]
    assert shown == [("queued", 1, 0), ("failed", 1, 0)]
