"""What went on in a workspace."""

from datetime import UTC, datetime
from uuid import UUID

from quarterdeck.activity import rules, store
from quarterdeck.activity.model import REACH, ActivityBody, InputCount, Reach, RunsByState, TimeToStart, Window
from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.db.database import Connection


async def get_activity(access: Access, call: Call[None], minutes: int) -> ActivityBody:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> ActivityBody:
        return await count(connection, workspace_id, rules.window(datetime.now(UTC), minutes), REACH)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def count(connection: Connection, workspace_id: UUID, window: Window, reach: Reach) -> ActivityBody:
    """What is counted is whole from `since` on: rather a shorter window than one with a part of what came in."""
    cuts = [
        await store.after_run(connection, workspace_id, window, reach.runs),
        await store.after_input(connection, workspace_id, window, reach.inputs),
    ]
    if since := max(filter(None, cuts), default=None):
        window = rules.cut(window, since)
    # Twice as many: some have come in since, and must not push the oldest out.
    runs = await store.runs(connection, workspace_id, window, 2 * reach.runs)
    inputs = await store.inputs(connection, workspace_id, window, 2 * reach.inputs)
    earlier = await store.active_before(connection, workspace_id, window.since, reach.runs)
    return ActivityBody(
        since=window.since,
        until=window.until,
        bucket_seconds=window.bucket_seconds,
        runs_by_state=RunsByState(**(runs.by_state + earlier)),
        inputs=[InputCount(at, inputs[place]) for place, at in enumerate(window.starts)],
        time_to_start=[
            TimeToStart(at, *runs.started.get(place, (0, None, None))) for place, at in enumerate(window.starts)
        ],
    )
