"""Counts the activity of a workspace."""

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import Query, operation
from quarterdeck.db.database import Connection
from quarterdeck.insights.activity import store
from quarterdeck.insights.activity.model import (
    LIMITS,
    ActivityBody,
    CountLimits,
    InputCount,
    RunsByState,
    TimeToStart,
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
        return await count(connection, workspace_id, activity_window(datetime.now(UTC), query.minutes), LIMITS)

    return await access.read(call, visible_workspace(call), show)


async def count(connection: Connection, workspace_id: UUID, window: Window, limits: CountLimits) -> ActivityBody:
    """Counts are complete from `since` on: the window is shortened if it holds more rows than the limits allow."""
    limit_times = [
        await store.run_limit_time(connection, workspace_id, window, limits.runs),
        await store.input_limit_time(connection, workspace_id, window, limits.inputs),
    ]
    if since := max(filter(None, limit_times), default=None):
        window = shortened(window, since)
    # Twice the limit: rows added since the check above must not displace the oldest.
    runs = await store.runs(connection, workspace_id, window, 2 * limits.runs)
    inputs = await store.inputs(connection, workspace_id, window, 2 * limits.inputs)
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
