"""How long the fleet needs to work normally again after a fault."""

import asyncio
import time
from contextlib import suppress
from uuid import UUID

import httpx
import psycopg

from tests.fleet.deployment import Deployment
from tests.fleet.process import ApiProcess

# A fleet that needs longer than this counts as broken.
RECOVERY_SECONDS = 60.0


async def wait_for_recovery(fleet: Deployment) -> float | None:
    """Seconds until every API process has accepted an input, its run has succeeded, and every run that was under way
    has progressed. None if that takes too long."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(RECOVERY_SECONDS):
            under_way = await _progress_of_runs(fleet)
            await asyncio.gather(*(wait_until_serving(fleet, api) for api in fleet.apis))
            while under_way.items() & (await _progress_of_runs(fleet)).items():
                await asyncio.sleep(0.1)
    except TimeoutError:
        return None
    return time.monotonic() - began


async def _progress_of_runs(fleet: Deployment) -> dict[UUID, tuple[object, ...]]:
    query = "SELECT id, attempt, steps, consumed_through FROM runs WHERE state = 'running'"
    while True:
        with suppress(psycopg.OperationalError):
            return {row[0]: row[1:] for row in await fleet.fetch(query)}
        await asyncio.sleep(0.05)


async def wait_until_serving(fleet: Deployment, api: ApiProcess) -> None:
    """Until this process accepts an input and the run of the input succeeds."""
    headers = {"Authorization": f"Bearer {fleet.key}"}
    run_url = ""
    async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=2.0) as http:
        while True:
            with suppress(httpx.TransportError):
                if not run_url:
                    session = await http.post("/v1/sessions", json={"title": "a probe"})
                    if session.status_code == 201:
                        path = f"/v1/sessions/{session.json()['id']}/events"
                        run = await http.post(path, json={"type": "input", "text": "A probe."})
                        run_url = f"/v1/runs/{run.json()['run_id']}" if run.status_code == 200 else ""
                else:
                    state = (await http.get(run_url)).json().get("state")
                    if state == "succeeded":
                        return
                    run_url = "" if state == "failed" else run_url
            await asyncio.sleep(0.05)
