"""GET /v1/activity."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quarterdeck.core.ids import created_at, first_id_at
from tests.workers import ended, working
from tests.world import Server, World, error_of

NONE = {"pending": 0, "queued": 0, "running": 0, "waiting": 0, "succeeded": 0, "failed": 0, "cancelled": 0}


async def activity(world: World, query: str = "") -> dict[str, Any]:
    answer = await world.get(f"/v1/activity{query}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def run_in(world: World, session_id: str) -> UUID:
    return UUID((await world.submit(session_id)).json()["run_id"])


async def move_run(world: World, run_id: UUID, moment: datetime) -> UUID:
    """As if it had been created then."""
    moved = UUID(int=first_id_at(moment).int | run_id.int & (2**80 - 1))
    await world.execute("UPDATE runs SET id = %s WHERE id = %s", moved, run_id)
    return moved


def moments(body: dict[str, Any]) -> list[datetime]:
    return [datetime.fromisoformat(one["at"]) for one in body["inputs"]]


async def test_workspace_without_activity(world: World) -> None:
    body = await activity(world)
    assert set(body) == {"since", "until", "bucket_seconds", "runs_by_state", "inputs", "time_to_start"}
    assert body["runs_by_state"] == NONE
    starts = moments(body)
    assert len(starts) == 60
    assert body["bucket_seconds"] == 60
    assert {later - start for start, later in pairwise(starts)} == {timedelta(minutes=1)}
    assert datetime.fromisoformat(body["since"]) == starts[0]
    assert timedelta() <= datetime.fromisoformat(body["until"]) - starts[-1] < timedelta(minutes=1)
    assert {one["count"] for one in body["inputs"]} == {0}
    assert [one["at"] for one in body["time_to_start"]] == [one["at"] for one in body["inputs"]]
    assert all((one["runs"], one["p50_ms"], one["p95_ms"]) == (0, None, None) for one in body["time_to_start"])


async def test_inputs_are_counted_where_they_were_accepted(world: World) -> None:
    """Those that steer too, and those of other workspaces not."""
    other = await World.create(world.database_url, world.http)
    await run_in(other, await other.new_session())
    session_id = await world.new_session()
    for _ in range(6):
        await run_in(world, session_id)
    rows = await world.fetch(
        "SELECT id FROM session_events WHERE session_id = %s AND type = 'input.accepted' ORDER BY id", session_id
    )
    starts = moments(await activity(world, "?minutes=600"))
    # At the very beginning of a stretch, at its very end, and before the window. The last two stay where they are.
    new_times = [starts[5], starts[6] - timedelta(microseconds=1), starts[6], starts[0] - timedelta(microseconds=1)]
    for moment, (event_id,) in zip(new_times, rows, strict=False):
        await world.execute("UPDATE session_events SET created_at = %s WHERE id = %s", moment, event_id)
    body = await activity(world, "?minutes=600")
    counts = {datetime.fromisoformat(one["at"]): one["count"] for one in body["inputs"]}
    assert (counts.pop(starts[5]), counts.pop(starts[6])) == (2, 1)
    assert sum(counts[start] for start in sorted(counts)[-2:]) == sum(counts.values()) == 2


async def test_runs_by_state(world: World) -> None:
    runs = {state: [await run_in(world, await world.new_session()) for _ in range(2)] for state in NONE}
    old = datetime.now(UTC) - timedelta(days=30)
    for state, (young, aged) in runs.items():
        since = datetime.now(UTC) if state == "waiting" else None
        query = "UPDATE runs SET state = %s, waiting_since = %s WHERE id IN (%s, %s)"
        await world.execute(query, state, since, young, aged)
        await move_run(world, aged, old)
    expected = {"pending": 2, "queued": 2, "running": 2, "waiting": 2, "succeeded": 1, "failed": 1, "cancelled": 1}
    assert (await activity(world))["runs_by_state"] == expected
    # Runs are seen by the time of their creation, whenever they ended.
    await move_run(world, runs["failed"][0], datetime.now(UTC) - timedelta(minutes=7))
    assert (await activity(world, "?minutes=5"))["runs_by_state"] == expected | {"failed": 0}
    assert (await activity(world, "?minutes=10"))["runs_by_state"] == expected


async def test_time_to_start(world: World) -> None:
    """Of each stretch by itself, and only of runs that have started. A clock that is behind is no time machine."""
    starts = moments(await activity(world, "?minutes=10080"))
    index = len(starts) - 10
    for number, wait_ms in enumerate([10, 20, 30, 40, 1000]):
        run_id = await run_in(world, await world.new_session())
        moved = await move_run(world, run_id, starts[index] + timedelta(milliseconds=number))
        started_at = created_at(moved) + timedelta(milliseconds=wait_ms)
        await world.execute("UPDATE runs SET state = 'running', started_at = %s WHERE id = %s", started_at, moved)
    await move_run(world, await run_in(world, await world.new_session()), starts[index])
    early = await move_run(world, await run_in(world, await world.new_session()), starts[index + 1])
    await world.execute("UPDATE runs SET started_at = %s WHERE id = %s", starts[index], early)
    body = await activity(world, "?minutes=10080")
    found = {datetime.fromisoformat(one.pop("at")): one for one in body["time_to_start"] if one["runs"]}
    assert found == {
        starts[index]: {"runs": 5, "p50_ms": 30, "p95_ms": 1000},
        starts[index + 1]: {"runs": 1, "p50_ms": 0, "p95_ms": 0},
    }


@pytest.mark.long
async def test_a_run_that_a_worker_drove(world: World, server: Server, tmp_path: Path) -> None:
    with working(server.database_url, tmp_path):
        run_id = await run_in(world, await world.new_session())
        run = await ended(world, str(run_id))
    body = await activity(world)
    assert body["runs_by_state"] == NONE | {"succeeded": 1}
    (waited,) = [one for one in body["time_to_start"] if one["runs"]]
    created, started = (datetime.fromisoformat(run[name]) for name in ("created_at", "started_at"))
    assert waited["p50_ms"] == waited["p95_ms"]
    assert abs(waited["p50_ms"] - (started - created) / timedelta(milliseconds=1)) <= 1


@pytest.mark.parametrize("minutes", ["4", "10081", "0", "-5", "+60", "6_0", "x", "", "5&minutes=5"])
async def test_bad_minutes_are_400(world: World, minutes: str) -> None:
    assert error_of(await world.get(f"/v1/activity?minutes={minutes}")) == (400, "invalid_request")


@pytest.mark.parametrize(("minutes", "bucket_seconds"), [(5, 5), (1440, 1800), (10080, 10800)])
async def test_shortest_and_longest_period(world: World, minutes: int, bucket_seconds: int) -> None:
    body = await activity(world, f"?minutes={minutes}")
    assert body["bucket_seconds"] == bucket_seconds
    assert len(body["inputs"]) == len(body["time_to_start"]) == minutes * 60 // bucket_seconds
