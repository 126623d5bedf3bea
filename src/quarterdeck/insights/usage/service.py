"""Sums up the usage of a workspace."""

from datetime import date, timedelta
from functools import partial
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import operation
from quarterdeck.core.queries import DaysQuery
from quarterdeck.db.database import Connection, Database
from quarterdeck.insights.usage import store
from quarterdeck.insights.usage.model import MAX_ITEMS, MAX_ROWS, UsageBody, UsageGroup


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
        return await sum_up(connection, workspace_id, query.group_by, query.start, query.end, MAX_ROWS)

    return await access.read(call, visible_workspace(call), show)


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
    delete = partial(store.delete_old, workspace_id=workspace_id, days=days, batch=batch)
    return await database.in_batches(delete, batch)
