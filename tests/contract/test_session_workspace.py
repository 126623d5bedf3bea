"""The setting `workspace` of sessions, on servers with and without a sandbox."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from quarterdeck.core.settings import DatabaseSettings, ModelSettings, RunSettings
from quarterdeck.db.database import Database
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.worker.run_driver import begin_attempt
from tests.world import PATIENT, World, app_url, error_of, serving


async def test_values_that_are_refused(world: World) -> None:
    for value in (None, "container", "", True):
        for answer in (
            await world.post("/v1/sessions", {"workspace": value}),
            await world.patch(f"/v1/sessions/{await world.new_session()}", {"workspace": value}),
        ):
            assert error_of(answer) == (400, "invalid_request")
            assert "workspace" in answer.json()["error"]["message"]


@asynccontextmanager
async def world_at(database_url: str, folder: Path, **settings: object) -> AsyncIterator[World]:
    with serving(database_url, folder, **PATIENT, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            yield await World.create(database_url, http)


async def pinned(world: World, session_id: str) -> str:
    """The workspace of a run that begins now."""
    run_id = UUID((await world.submit(session_id)).json()["run_id"])
    models = ModelCatalog(ModelSettings())

    database = Database(app_url(world.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    lease = await begin_attempt(database, models, run_id, RunSettings(), again=False)
    await database.close()
    assert lease is not None
    return lease.setup.workspace


@pytest.mark.long
async def test_sessions_of_servers_with_and_without_a_sandbox(database_url: str, tmp_path: Path) -> None:
    """An API process believes a kind of sandbox that is named: workers check it."""
    async with world_at(database_url, tmp_path, SANDBOX_KIND="bubblewrap") as world:
        session = (await world.post("/v1/sessions", {})).json()
        assert session["workspace"] == "sandbox"
        path = f"/v1/sessions/{session['id']}"
        assert await pinned(world, session["id"]) == "sandbox"
        changed = await world.patch(path, {"workspace": "none"})
        assert changed.json() == session | {"title": "hello", "workspace": "none", "revision": 2}
        entry = (await world.get("/v1/audit-events?limit=1")).json()["items"][0]
        assert entry["detail"] == {"fields": ["workspace"]}
        asked = (await world.post("/v1/sessions", {"workspace": "none"})).json()
        assert (asked["workspace"], await pinned(world, asked["id"])) == ("none", "none")
        forked = (await world.post(f"{path}/fork", {})).json()
        assert forked["workspace"] == "none"
        assert (await world.patch(path, {"workspace": "sandbox"})).json()["workspace"] == "sandbox"
        key = world.key
    folder = tmp_path / "none"
    folder.mkdir()
    async with world_at(database_url, folder, SANDBOX_KIND="none") as world:
        plain = (await world.post("/v1/sessions", {})).json()
        assert plain["workspace"] == "none"
        for refused in (
            await world.post("/v1/sessions", {"workspace": "sandbox"}),
            await world.patch(f"/v1/sessions/{plain['id']}", {"workspace": "sandbox"}),
        ):
            assert error_of(refused) == (400, "invalid_request")
            assert "QUARTERDECK_SANDBOX_KIND" in refused.json()["error"]["message"]
        # What a session has already may stay.
        same = await world.patch(path, {"workspace": "sandbox", "title": "x"}, key=key)
        assert (same.status_code, same.json()["workspace"]) == (200, "sandbox")
        assert (await world.post(f"{path}/fork", {}, key=key)).json()["workspace"] == "sandbox"
