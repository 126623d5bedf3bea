"""Which runs leave their places, and what a run that waited for too long leaves behind."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection

from quarterdeck.conversations.runs import lifecycle
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import DatabaseSettings, RunSettings
from quarterdeck.db.database import Database
from tests.workers import resolve_setup
from tests.world import AS_OWNER, World, app_url

_ADD_JOB = """
INSERT INTO jobs.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, status, workspace_id, ask_at)
VALUES ('runs', 'drive_run', %s, %s, %s, %s, now() - interval '1 minute')
"""


@pytest.fixture
async def connection(database_url: str) -> "AsyncIterator[AsyncConnection[Any]]":
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        yield connection


async def test_the_newest_run_leaves_and_not_the_one_that_left_before(connection: "AsyncConnection[Any]") -> None:
    """The job of the oldest run is the newest: the run left its place before and has returned."""
    greedy, neighbour = uuid4(), uuid4()
    oldest, middle, newest = (new_id() for _ in range(3))
    for run_id in (middle, newest, oldest):
        await connection.execute(_ADD_JOB, (str(uuid4()), str(run_id), "doing", greedy))
    await connection.execute(_ADD_JOB, (str(uuid4()), str(new_id()), "todo", neighbour))
    await connection.execute("SELECT ask_runs_to_leave()")
    rows = await (
        await connection.execute("SELECT queueing_lock FROM jobs.procrastinate_jobs WHERE leaving")
    ).fetchall()
    assert rows == [(str(newest),)]


async def test_inputs_of_a_run_that_is_overdue_start_the_next_run(world: World) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "not lost")).json()["run_id"]
    await world.execute("UPDATE runs SET started_at = now() - interval '2 hours' WHERE id = %s", run_id)
    database = Database(app_url(world.database_url), DatabaseSettings())
    await database.open()
    try:
        assert await lifecycle.begin(database, UUID(run_id), RunSettings(), resolve_setup, again=False) is None
    finally:
        await database.close()
    runs = (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"]
    shown = [(run["state"], run["inputs_accepted"], run["inputs_consumed"]) for run in runs]
    assert shown == [("queued", 1, 0), ("failed", 1, 0)]
