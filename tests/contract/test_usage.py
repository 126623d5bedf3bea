"""GET /v1/usage."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.insights import service
from quarterdeck.insights.model import UsageGroup
from tests.world import World, error_of

_ADD = """
INSERT INTO run_usage (workspace_id, day, run_id, session_id, api_key_id, model, input_tokens, cached_tokens,
                       cache_write_tokens, output_tokens, cost_usd)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
TODAY = datetime.now(UTC).date()
FIRST, SECOND, LONG_AGO = TODAY - timedelta(days=1), TODAY, TODAY - timedelta(days=100)


async def add(
    world: World, day: date, run_id: UUID, session_id: str, model: str, tokens: int, cost: str | None, key: UUID | None
) -> None:
    values = (session_id, key, model, tokens, tokens // 2, tokens // 4, 1, cost)
    await world.execute(_ADD, world.workspace_id, day, run_id, *values)


async def usage(world: World, query: str = "") -> dict[str, Any]:
    answer = await world.get(f"/v1/usage{query}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def item(group: str | None, label: str | None, *figures: float | None) -> dict[str, Any]:
    names = ("runs", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "cost_usd")
    return {"group": group, "label": label} | dict(zip(names, figures, strict=True))


async def test_usage_in_every_group(world: World) -> None:
    session = (await world.post("/v1/sessions", {"title": "Release notes"})).json()["id"]
    deleted, key = str(uuid4()), (await world.new_key_record((), label="release server"))[1]
    across, other = uuid4(), uuid4()
    await add(world, FIRST, across, session, "openai:gpt-5", 100, "0.10", key)
    await add(world, SECOND, across, session, "openai:gpt-5", 200, "0.20", key)
    await add(world, SECOND, other, deleted, "demo", 1000, None, None)
    await add(world, LONG_AGO, uuid4(), session, "demo", 5, None, None)
    first, second = item(str(FIRST), None, 1, 100, 50, 25, 1, 0.1), item(str(SECOND), None, 2, 1200, 600, 300, 2, 0.2)

    body = await usage(world)
    assert body["items"] == [second, first]
    assert (body["since"], body["until"]) == (str(TODAY - timedelta(days=29)), str(TODAY + timedelta(days=1)))
    of_run, unpriced = (1, 300, 150, 75, 2, 0.3), (1, 1000, 500, 250, 1, None)
    by_session = (await usage(world, "?group_by=session"))["items"]
    assert by_session == [item(session, "Release notes", *of_run), item(deleted, None, *unpriced)]
    by_model = (await usage(world, "?group_by=model"))["items"]
    assert by_model == [item("openai:gpt-5", None, *of_run), item("demo", None, *unpriced)]
    by_key = (await usage(world, "?group_by=api_key"))["items"]
    assert by_key == [item(str(key), "release server", *of_run), item(None, None, *unpriced)]

    assert (await usage(world, f"?from={FIRST}&to={SECOND}"))["items"] == [first], "to is exclusive"
    assert (await usage(world, f"?from={SECOND}"))["items"] == [second]
    rounded = await usage(world, f"?from={FIRST}T23:30:00Z&to={FIRST}T23:45:00%2B00:00")
    assert (rounded["since"], rounded["until"], rounded["items"]) == (str(FIRST), str(SECOND), [first])
    midnight = await usage(world, f"?from={FIRST}T00:00:00Z&to={SECOND}T00:00:00Z")
    assert (midnight["since"], midnight["until"]) == (str(FIRST), str(SECOND))
    offset = await usage(world, f"?from={SECOND}T01:00:00%2B02:00")
    assert offset["since"] == str(FIRST), "the day in UTC"
    long = await usage(world, "?from=2024-01-01&to=2026-01-02")
    assert (long["since"], long["until"]) == ("2025-01-01", "2026-01-02"), "366 days"
    for empty in (
        "?from=2026-03-02&to=2026-03-02",
        "?to=0001-01-01",
    ):
        assert (await usage(world, empty))["items"] == []


async def test_runs_are_those_that_activity_counts(world: World) -> None:
    """Also runs without a stored step: here one that is queued, one that was cancelled and one that is counted twice if
    both of its sources are."""
    session, other = [(await world.post("/v1/sessions", {"title": "t"})).json()["id"] for _ in range(2)]
    queued = (await world.submit(session)).json()["run_id"]
    cancelled = (await world.submit(other)).json()["run_id"]
    assert (await world.post(f"/v1/runs/{cancelled}/cancel", {})).status_code == 200
    with_step = (await world.submit(other)).json()["run_id"]
    await world.execute("UPDATE runs SET steps = 1, model = 'demo' WHERE id = %s", with_step)
    key = (await world.fetch("SELECT api_key_id FROM runs WHERE id = %s", queued))[0][0]
    await add(world, TODAY, UUID(with_step), other, "demo", 100, None, key)

    by_state = (await world.get("/v1/activity?minutes=60")).json()["runs_by_state"]
    assert sum(by_state.values()) == 3
    used = (100, 50, 25, 1, None)
    assert (await usage(world))["items"] == [item(str(TODAY), None, 3, *used)]
    unused = (0, 0, 0, 0, None)
    by_session = (await usage(world, "?group_by=session"))["items"]
    assert by_session == [item(other, "t", 2, *used), item(session, "t", 1, *unused)]
    by_model = (await usage(world, "?group_by=model"))["items"]
    assert by_model == [item("demo", None, 1, *used), item(None, None, 2, *unused)], "none was chosen yet"
    assert [each["runs"] for each in (await usage(world, "?group_by=api_key"))["items"]] == [3]
    assert (await usage(world, f"?to={TODAY}"))["items"] == []


async def test_too_many_rows_shorten_the_period(world: World) -> None:
    """By whole days: the oldest day that would be counted in part is left out. The last day is always counted."""
    for day, rows in ((TODAY - timedelta(days=2), 1), (FIRST, 2), (SECOND, 3)):
        for _ in range(rows):
            await add(world, day, uuid4(), str(uuid4()), "demo", 10, None, None)
    start, end = TODAY - timedelta(days=9), TODAY + timedelta(days=1)
    async with await world.connect() as connection:
        for max_rows, since, days in ((6, start, 3), (5, FIRST, 2), (4, SECOND, 1), (3, SECOND, 1), (2, SECOND, 1)):
            body = await service.sum_up_usage(connection, world.workspace_id, UsageGroup.DAY, start, end, max_rows)
            assert (body.since, len(body.items), body.items[0].runs) == (since, days, 3)


@pytest.mark.parametrize(
    "query",
    [
        "?group_by=week",
        "?from=2026-02-30",
        "?from=2026-03-01T00:00:00",
        "?from=yesterday",
        "?to=9999-12-31T23:59:59Z",
        "?from=0001-01-01T00:00:00%2B14:00",
        "?from=2026-03-02&to=2026-03-01",
        "?from=9999-12-31",
    ],
)
async def test_wrong_days_are_refused(world: World, query: str) -> None:
    assert error_of(await world.get(f"/v1/usage{query}"))[0] == 400
