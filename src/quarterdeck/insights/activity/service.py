"""Counts the activity of a workspace."""

from datetime import UTC, datetime
from uuid import UUID

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.db.database import Connection
from quarterdeck.insights.activity import rules, store
from quarterdeck.insights.activity.model import (
    LIMITS,
    ActivityBody,
    CountLimits,
    InputCount,
    RunsByState,
    TimeToStart,
    Window,
)


async def get_activity(access: Access, call: Call[None], minutes: int) -> ActivityBody:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> ActivityBody:
        return await count(connection, workspace_id, rules.window(datetime.now(UTC), minutes), LIMITS)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def count(connection: Connection, workspace_id: UUID, window: Window, limits: CountLimits) -> ActivityBody:
    """Counts are complete from `since` on: the window is shortened if it holds more rows than the limits allow."""
    limit_times = [
        await store.run_limit_time(connection, workspace_id, window, limits.runs),
        await store.input_limit_time(connection, workspace_id, window, limits.inputs),
    ]
    if since := max(filter(None, limit_times), default=None):
        window = rules.shortened(window, since)
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
