"""Sums up the usage of a workspace."""

from datetime import date, timedelta
from uuid import UUID

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.db.database import Connection, Database
from quarterdeck.insights.usage import store
from quarterdeck.insights.usage.model import MAX_ITEMS, MAX_ROWS, UsageBody, UsageGroup


async def get_usage(access: Access, call: Call[None], group_by: UsageGroup, start: date, end: date) -> UsageBody:
    """From `start` until before `end`."""

    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> UsageBody:
        return await sum_up(connection, workspace_id, group_by, start, end, MAX_ROWS)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def sum_up(
    connection: Connection, workspace_id: UUID, group_by: UsageGroup, start: date, end: date, max_rows: int
) -> UsageBody:
    """Days are counted wholly or not at all. The last one is always counted."""
    partial = await store.day_at(connection, workspace_id, start, end, max_rows)
    if partial is not None:
        start = min(partial + timedelta(days=1), end - timedelta(days=1))
    items = await store.items(connection, workspace_id, group_by, start, end, MAX_ITEMS, max_rows)
    return UsageBody(since=start, until=end, items=items)


async def sweep_usage(database: Database, workspace_id: UUID, days: int, batch: int) -> int:
    async def delete(connection: Connection) -> int:
        return await store.delete_old(connection, workspace_id, days, batch)

    return await database.in_batches(delete, batch)
