"""Statistics: the activity of a workspace, the runs of an agent, and tokens and cost."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from quarterdeck.agents import service as agents
from quarterdeck.agents.model import AgentBody
from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.ids import created_at, first_id_at
from quarterdeck.core.operation import DaysQuery, Query, operation
from quarterdeck.db.database import Connection, Database
from quarterdeck.insights import store
from quarterdeck.insights.model import (
    LIMITS,
    MAX_ITEMS,
    MAX_ROWS,
    MAX_RUNS,
    MAX_VERSIONS,
    ActivityBody,
    AgentStatsBody,
    CountLimits,
    InputCount,
    RunsByState,
    TimeToStart,
    UsageBody,
    UsageGroup,
    Window,
)

# Divides a time window into buckets.

MAX_BUCKETS = 60
# Round lengths, for the axis of a chart.
_BUCKET_SECONDS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def activity_window(now: datetime, minutes: int) -> Window:
    """The bucket of `now` and enough buckets before it to cover the minutes. Buckets start at multiples of their length
    since 1970, so past buckets are the same in every call."""
    seconds = minutes * 60
    length = next(length for length in _BUCKET_SECONDS if -(-seconds // length) <= MAX_BUCKETS)
    step = timedelta(seconds=length)
    last = now - (now - _EPOCH) % step
    count = -(-seconds // length)
    return Window(length, [last - step * before for before in reversed(range(count))], now)


def shortened(window: Window, since: datetime) -> Window:
    """The window from a later time on. Its first bucket may be shorter than the others."""
    later = [start for start in window.starts if start > since]
    return Window(window.bucket_seconds, [since, *later], window.until)


class ActivityQuery(Query, frozen=True):
    minutes: Annotated[int, Meta(ge=5, le=7 * 24 * 60, description="Length of the period in minutes.")] = 60


@operation(
    summary="Get the activity of the workspace",
    description="Statistics for charts: runs by state, inputs, and how long runs waited for a worker, in up to 60 "
    "intervals of equal length until now. Deleted objects are not counted.",
    permission=Permission.WORKSPACE_READ,
    success="The statistics, oldest interval first. Intervals without activity are included.",
)
async def get_activity(access: Access, call: Call[None], query: ActivityQuery) -> ActivityBody:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> ActivityBody:
        return await count_activity(connection, workspace_id, activity_window(datetime.now(UTC), query.minutes), LIMITS)

    return await access.read(call, visible_workspace(call), show)


async def count_activity(
    connection: Connection, workspace_id: UUID, window: Window, limits: CountLimits
) -> ActivityBody:
    """Counts are complete from `since` on: the window is shortened if it holds more rows than the limits allow."""
    limit_times = [
        await store.run_limit_time(connection, workspace_id, window, limits.runs),
        await store.input_limit_time(connection, workspace_id, window, limits.inputs),
    ]
    if since := max(filter(None, limit_times), default=None):
        window = shortened(window, since)
    # Twice the limit: rows added since the check above must not displace the oldest.
    runs = await store.count_runs(connection, workspace_id, window, 2 * limits.runs)
    inputs = await store.count_inputs(connection, workspace_id, window, 2 * limits.inputs)
    earlier = await store.unfinished_before(connection, workspace_id, window.since, limits.runs)
    return ActivityBody(
        since=window.since,
        until=window.until,
        bucket_seconds=window.bucket_seconds,
        runs_by_state=RunsByState(**(runs.by_state + earlier)),
        inputs=[InputCount(at, inputs[index]) for index, at in enumerate(window.starts)],
        time_to_start=[
            TimeToStart(at, *runs.started.get(index, (0, None, None))) for index, at in enumerate(window.starts)
        ],
    )


# Sums up the runs of an agent.


@operation(
    summary="Get the statistics of an agent",
    description="Runs, failures, cost and duration for each version, of runs that were created on these days (UTC). "
    "Runs of deleted sessions are not included.",
    permission=Permission.WORKSPACE_READ,
    success="The statistics, newest version first.",
)
async def get_agent_stats(access: Access, call: Call[None], agent_id: UUID, query: DaysQuery) -> AgentStatsBody:
    async def show(connection: Connection, principal: Principal, _: AgentBody) -> AgentStatsBody:
        return await sum_up_runs(connection, principal.workspace_id, agent_id, query.start, query.end, MAX_RUNS)

    return await access.read(call, agents.visible_agent(call, agent_id), show)


async def sum_up_runs(
    connection: Connection, workspace_id: UUID, agent_id: UUID, start: date, end: date, max_runs: int
) -> AgentStatsBody:
    """Days are counted wholly, but for the last one if it alone has too many runs."""
    first, last = _first_id(start), _first_id(end)
    too_old = await store.run_at(connection, workspace_id, agent_id, first, last, max_runs)
    if too_old is not None:
        start = min(created_at(too_old).date() + timedelta(days=1), end - timedelta(days=1))
        first = _first_id(start)
    versions = await store.version_stats(connection, workspace_id, agent_id, first, last, max_runs, MAX_VERSIONS)
    return AgentStatsBody(agent_id=agent_id, since=start, until=end, versions=versions)


def _first_id(day: date) -> UUID:
    return first_id_at(datetime.combine(day, time(), UTC))


# Sums up the usage of a workspace.


class UsageQuery(DaysQuery, frozen=True):
    group_by: Annotated[UsageGroup, Meta(description="What an item stands for.")] = UsageGroup.DAY


@operation(
    summary="Get the usage of the workspace",
    description="Tokens and cost of whole days (UTC), from the first step that was stored with release 0.2.0 on. Runs "
    "of deleted sessions are included.",
    permission=Permission.WORKSPACE_READ,
    success=f"Days newest first, other groups with the highest cost first: at most {MAX_ITEMS:,}.",
)
async def get_usage(access: Access, call: Call[None], query: UsageQuery) -> UsageBody:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> UsageBody:
        return await sum_up_usage(connection, workspace_id, query.group_by, query.start, query.end, MAX_ROWS)

    return await access.read(call, visible_workspace(call), show)


async def sum_up_usage(
    connection: Connection, workspace_id: UUID, group_by: UsageGroup, start: date, end: date, max_rows: int
) -> UsageBody:
    """Days are counted wholly or not at all. The last one is always counted."""
    partial = await store.day_at(connection, workspace_id, start, end, max_rows)
    if partial is not None:
        start = min(partial + timedelta(days=1), end - timedelta(days=1))
    items = await store.usage_items(connection, workspace_id, group_by, start, end, MAX_ITEMS, max_rows)
    return UsageBody(since=start, until=end, items=items)


async def sweep_usage(database: Database, workspace_id: UUID, days: int, batch: int) -> int:
    """Each batch is a transaction of its own, so that no lock is held for long."""
    deleted = 0
    while True:
        count = await database.transaction(store.delete_old_usage, workspace_id, days, batch, repeatable=True)
        deleted += count
        if count < batch:
            return deleted
