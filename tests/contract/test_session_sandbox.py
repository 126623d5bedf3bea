"""`sandbox` of sessions and agents, on servers with and without a sandbox."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from quarterdeck.core.settings import DatabaseSettings, ModelSettings, RunSettings
from quarterdeck.db.database import Database
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.worker.run_driver import begin_attempt
from tests.contract.agent_requests import new_agent
from tests.world import PATIENT, World, app_url, error_of, serving


async def test_values_that_are_refused(world: World) -> None:
    values: list[object] = ["container", "", True, [], {"kind": "container"}]
    for value in values:
        for answer in (
            await world.post("/v1/sessions", {"sandbox": value}),
            await world.patch(f"/v1/sessions/{await world.new_session()}", {"sandbox": value}),
        ):
            assert error_of(answer) == (400, "invalid_request")
            assert "sandbox" in answer.json()["error"]["message"]


@asynccontextmanager
async def world_at(database_url: str, folder: Path, **settings: object) -> AsyncIterator[World]:
    with serving(database_url, folder, **PATIENT, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            yield await World.create(database_url, http)


async def pinned(world: World, session_id: str) -> SandboxOptions | None:
    """The sandbox of a run that begins now."""
    run_id = UUID((await world.submit(session_id)).json()["run_id"])
    models = ModelCatalog(ModelSettings())

    database = Database(app_url(world.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    lease = await begin_attempt(database, models, run_id, RunSettings(), again=False)
    await database.close()
    assert lease is not None
    return lease.setup.sandbox


@pytest.mark.long
async def test_sessions_of_servers_with_and_without_a_sandbox(database_url: str, tmp_path: Path) -> None:
    """An API process believes a kind of sandbox that is named: workers check it."""
    async with world_at(database_url, tmp_path, SANDBOX_KIND="bubblewrap") as world:
        session = (await world.post("/v1/sessions", {})).json()
        assert session["sandbox"] == {}
        path = f"/v1/sessions/{session['id']}"
        assert await pinned(world, session["id"]) == SandboxOptions()
        changed = await world.patch(path, {"sandbox": None})
        assert changed.json() == session | {"title": "hello", "sandbox": None, "revision": 2}
        entry = (await world.get("/v1/audit-events?limit=1")).json()["items"][0]
        assert entry["detail"] == {"fields": ["sandbox"]}
        asked = (await world.post("/v1/sessions", {"sandbox": None})).json()
        assert (asked["sandbox"], await pinned(world, asked["id"])) == (None, None)
        forked = (await world.post(f"{path}/fork", {})).json()
        assert forked["sandbox"] is None
        assert (await world.patch(path, {"sandbox": {}})).json()["sandbox"] == {}
        agent_id = await new_agent(world, "Writer", {})
        assert (await world.get(f"/v1/agents/{agent_id}/versions/1")).json()["sandbox"] == {}
        key = world.key
    folder = tmp_path / "none"
    folder.mkdir()
    async with world_at(database_url, folder, SANDBOX_KIND="none") as world:
        plain = (await world.post("/v1/sessions", {})).json()
        assert plain["sandbox"] is None
        for refused in (
            await world.post("/v1/sessions", {"sandbox": {}}),
            await world.patch(f"/v1/sessions/{plain['id']}", {"sandbox": {}}),
            await world.post("/v1/agents", {"name": "Other", "version": {"sandbox": {}}}),
            await world.post(f"/v1/agents/{agent_id}/versions", {"sandbox": {}}, key=key),
            # The version has the default of the server at that time.
            await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}}, key=key),
        ):
            assert error_of(refused) == (400, "invalid_request")
            assert "QUARTERDECK_SANDBOX_KIND" in refused.json()["error"]["message"]
        # What a session has already may stay.
        same = await world.patch(path, {"sandbox": {}, "title": "x"}, key=key)
        assert (same.status_code, same.json()["sandbox"]) == (200, {})
        assert (await world.post(f"{path}/fork", {}, key=key)).json()["sandbox"] == {}
        pushed = await world.post(f"/v1/agents/{agent_id}/versions", {}, key=key)
        assert (pushed.status_code, pushed.json()["sandbox"]) == (201, None)
