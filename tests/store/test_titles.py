"""Titles that sessions get from their first input. No worker: attempts are begun directly."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from tests.workers import begin_demo_run
from tests.world import Server, World, app_url


@pytest.fixture
async def database(server: Server) -> AsyncIterator[Database]:
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    yield database
    await database.close()


async def begin(world: World, database: Database, session_id: str, text: str) -> str:
    """Begins a run with this input. Returns its id."""
    run_id: str = (await world.submit(session_id, text)).json()["run_id"]
    assert await begin_demo_run(database, UUID(run_id))
    return run_id


async def session_of(world: World, session_id: str) -> dict[str, Any]:
    session: dict[str, Any] = (await world.get(f"/v1/sessions/{session_id}")).json()
    return session


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Plan the trip", "Plan the trip"),
        ("\n \t\r\n  Plan\tthe \x1b[1m trip  \nand book it", "Plan the [1m trip"),
        ("one\u2028two", "one"),
        ("a\u202eb\u2066c\x85d", "a b c"),
        ("word " * 30, "word " * 15 + "word…"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ("é" * 100_000, "é" * 79 + "…"),
        ("", None),
        (" \n\u00a0\x1b", None),
    ],
)
async def test_title_of_a_text(world: World, text: str, title: str | None) -> None:
    assert await world.fetch("SELECT app.title_of(%s)", text) == [(title,)]


async def test_the_first_run_gives_a_title(world: World, database: Database) -> None:
    session_id = await world.new_session()
    before = await session_of(world, session_id)
    run_id = await begin(world, database, session_id, "Count the boats\nin the harbour")
    after = await session_of(world, session_id)
    assert after["title"] == "Count the boats"
    assert after["revision"] == before["revision"], "nobody has changed the session"
    found = (await world.get("/v1/sessions?search=count%20the")).json()["items"]
    assert [one["id"] for one in found] == [session_id]
    # What a person sets or removes stays so.
    for title in ("Harbour", None):
        await world.post(f"/v1/runs/{run_id}/cancel", None)
        assert (await world.patch(f"/v1/sessions/{session_id}", {"title": title})).status_code == 200
        run_id = await begin(world, database, session_id, "Another input")
        assert (await session_of(world, session_id))["title"] == title


async def test_a_given_title_stays(world: World, database: Database) -> None:
    session_id = (await world.post("/v1/sessions", {"title": "Given"})).json()["id"]
    await begin(world, database, session_id, "Hello")
    assert (await session_of(world, session_id))["title"] == "Given"


async def test_a_title_expires_with_its_input(world: World, database: Database) -> None:
    """Also in a fork, and not if a person has set it."""
    sessions = [await world.new_session() for _ in range(2)]
    for session_id in sessions:
        run_id = await begin(world, database, session_id, "Secret plan")
        await world.post(f"/v1/runs/{run_id}/cancel", None)
    own, changed = sessions
    fork = (await world.post(f"/v1/sessions/{own}/fork", {})).json()
    assert fork["title"] == "Secret plan (fork)"
    await world.patch(f"/v1/sessions/{changed}", {"title": "Plan"})
    query = "SELECT FROM app.expire_logs(%s::uuid[], now() + interval '1 hour', NULL, 1000, 60)"
    await world.fetch(query, [own, changed, fork["id"]])
    titles = [(await session_of(world, one))["title"] for one in (own, changed, fork["id"])]
    assert titles == [None, "Plan", None]
