"""Statistics of agents."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from quarterdeck.core.ids import first_id_at, new_id
from quarterdeck.insights.service import sum_up_runs
from tests.contract.agent_requests import new_agent
from tests.world import World, error_of

_ADD = """
INSERT INTO runs (id, session_id, workspace_id, state, agent_id, agent_version, started_at, finished_at, waited_seconds,
                  input_tokens, cached_tokens, output_tokens, cost_usd, attempt, first_input, last_input,
                  consumed_through)
VALUES (%s, %s, %s, %s, %s, %s, now() - interval '1 hour',
        now() - interval '1 hour' + %s::float8 * interval '1 second', %s, 10, 5, 2, %s, 1, 1, 1, 1)
"""


class Filled:
    def __init__(self, world: World, agent_id: str, session_id: str) -> None:
        self.world, self.agent_id, self.session_id = world, agent_id, session_id
        self.today = datetime.now(UTC).date()

    async def add(self, days: int, version: int, state: str, seconds: float | None, cost: float | None) -> None:
        noon = datetime.combine(self.today - timedelta(days=days), time(12), UTC)
        # The random part of the id differs.
        run_id = UUID(int=first_id_at(noon).int | new_id().int & (2**62 - 1))
        waited = 0 if seconds is None else 100
        ended = None if seconds is None else seconds + waited
        values = (state, self.agent_id, version, ended, waited, cost)
        await self.world.execute(_ADD, run_id, self.session_id, self.world.workspace_id, *values)


async def test_figures_of_each_version(world: World) -> None:
    agent_id = await new_agent(world, "Writer", {}, {}, {})
    path = f"/v1/agents/{agent_id}/stats"
    filled = Filled(world, agent_id, (await world.post("/v1/sessions", {"agent": {"agent_id": agent_id}})).json()["id"])
    nothing = (await world.get(path)).json()
    assert nothing["versions"] == []
    for seconds in range(1, 21):
        await filled.add(1, 1, "succeeded", seconds, 0.5)
    await filled.add(2, 1, "failed", 30, None)
    await filled.add(2, 1, "cancelled", 30, None)
    await filled.add(2, 2, "running", None, None)
    await filled.add(40, 3, "failed", 1, 9)

    async def stats(query: str = "") -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
        body = (await world.get(f"{path}{query}")).json()
        return {one["version"]: one for one in body["versions"]}, body

    # Not the default, which is another day after midnight.
    found, body = await stats(f"?to={filled.today + timedelta(days=1)}")
    assert body["agent_id"] == agent_id
    assert [one["version"] for one in body["versions"]] == [2, 1]
    assert body["since"] == str(filled.today + timedelta(days=1 - 30))
    assert {name: round(value, 3) for name, value in found[1].items()} == {
        "version": 1,
        "runs": 22,
        "failures": 1,
        "input_tokens": 220,
        "cached_tokens": 110,
        "cache_write_tokens": 0,
        "output_tokens": 44,
        "cost_usd": 10.0,
        "mean_seconds": round(270 / 22, 3),
        "p50_seconds": 11.5,
        "p95_seconds": 29.5,
    }
    assert (found[2]["runs"], found[2]["cost_usd"], found[2]["mean_seconds"], found[2]["p95_seconds"]) == (
        1,
        None,
        None,
        None,
    )
    yesterday = filled.today - timedelta(days=1)
    assert (await stats(f"?from={yesterday}"))[0][1]["runs"] == 20
    assert set((await stats(f"?to={yesterday}"))[0]) == {1, 2}
    assert set((await stats(f"?from={filled.today - timedelta(days=50)}"))[0]) == {1, 2, 3}
    assert error_of(await world.get(f"{path}?from=2026-03-02&to=2026-03-01")) == (400, "invalid_request")

    # Too many runs: the days before are left out.
    async with await world.connect() as connection:
        end = filled.today + timedelta(days=1)
        most = await sum_up_runs(connection, world.workspace_id, UUID(agent_id), yesterday - timedelta(days=5), end, 20)
        assert (most.since, [(one.version, one.runs) for one in most.versions]) == (yesterday, [(1, 20)])
