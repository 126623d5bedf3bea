"""Runs that wait for answers, for tests."""

from typing import Any

from tests.workers import check_log, ended, eventually, log_of
from tests.world import World


async def new_session(world: World, **fields: Any) -> str:
    answer = await world.post("/v1/sessions", fields)
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def open_actions(world: World, run_id: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait until the run waits for so many actions, and return them, oldest first."""

    async def look() -> list[dict[str, Any]]:
        run = (await world.get(f"/v1/runs/{run_id}")).json()
        assert (run["state"] == "waiting") == bool(run["waiting_for"])
        assert run["state"] in ("queued", "running", "waiting"), run
        ids: list[str] = run["waiting_for"]
        if not ids:
            return []
        assert len(ids) == count
        return [(await world.get(f"/v1/actions/{action_id}")).json() for action_id in ids]

    found: list[dict[str, Any]] = await eventually(look)
    return found


async def resolve(world: World, action: dict[str, Any], **answer: Any) -> None:
    response = await world.post(f"/v1/actions/{action['id']}/resolve", answer)
    assert response.status_code == 200, response.text


async def results_of(world: World, session_id: str) -> dict[str, str]:
    """The result of each call, by the name of the tool."""
    entries = await log_of(world, session_id)
    return {entry["data"]["name"]: entry["data"]["text"] for entry in entries if entry["type"] == "tool.result"}


async def start(world: World, session_id: str, text: str) -> str:
    answer = await world.submit(session_id, text)
    assert answer.json()["outcome"] == "new_run", answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def types_of(world: World, session_id: str) -> list[str]:
    return [entry["type"] for entry in await log_of(world, session_id)]


async def notes_of(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "note"]


async def succeeded(world: World, run_id: str) -> None:
    run = await ended(world, run_id)
    assert run["state"] == "succeeded", run
    assert run["waiting_for"] == []
    check_log(await log_of(world, run["session_id"]))
