"""Requests about agents, for several test files."""

from typing import Any
from uuid import UUID

from quarterdeck.core.settings import DatabaseSettings, ModelSettings, RunSettings
from quarterdeck.db.database import Database
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.worker.run_driver import begin_attempt
from tests.world import World, app_url


async def new_agent(world: World, name: str, *versions: dict[str, Any]) -> str:
    answer = await world.post("/v1/agents", {"name": name, "version": versions[0]} if versions else {"name": name})
    assert answer.status_code == 201, answer.text
    agent_id: str = answer.json()["id"]
    for version in versions[1:]:
        await push(world, agent_id, version)
    return agent_id


async def push(world: World, agent_id: str, version: dict[str, Any]) -> dict[str, Any]:
    answer = await world.post(f"/v1/agents/{agent_id}/versions", version)
    assert answer.status_code == 201, answer.text
    pushed: dict[str, Any] = answer.json()
    return pushed


async def change_agent(world: World, agent_id: str, **body: Any) -> dict[str, Any]:
    answer = await world.patch(f"/v1/agents/{agent_id}", body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{changed["revision"]}"'
    return changed


async def begin_run(world: World, run_id: str) -> Lease:
    """An attempt as a worker begins it."""
    models = ModelCatalog(ModelSettings())

    database = Database(app_url(world.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    try:
        lease = await begin_attempt(database, models, UUID(run_id), RunSettings(), again=False)
    finally:
        await database.close()
    assert lease is not None
    return lease
