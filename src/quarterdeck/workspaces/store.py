"""SQL for workspaces."""

from uuid import UUID

import msgspec
from msgspec.structs import replace
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import Limit
from quarterdeck.core.retention import RetentionDays, retention_in_force
from quarterdeck.db.database import Connection
from quarterdeck.db.records import (
    Row,
    as_record,
    fetch_bool,
    fetch_rows,
    fetch_value,
)
from quarterdeck.workspaces.model import WorkspaceBody, WorkspaceLimits

_ADD_WORKSPACE = "INSERT INTO workspaces (id, name, owner_id) VALUES (%s, %s, %s)"
_CHANGE = """
UPDATE workspaces
SET name = %(name)s, max_key_days = %(days)s, owner_id = %(owner)s, daily_max_cost_usd = %(cost)s,
    daily_max_tokens = %(tokens)s, retention = %(retention)s, revision = revision + 1
WHERE id = %(id)s AND (name, max_key_days, owner_id, daily_max_cost_usd, daily_max_tokens, retention)
    IS DISTINCT FROM (
        %(name)s, %(days)s::integer, %(owner)s, %(cost)s::numeric, %(tokens)s::bigint, %(retention)s::jsonb
    )
"""
_RETENTION_OF_ALL = "SELECT id, retention FROM workspaces ORDER BY id"
_SERVER_AUDIT_DAYS = "SELECT keep_days FROM audit_retention"
_SELECT = """
SELECT w.id, w.name, w.max_key_days, w.daily_max_cost_usd::float8, w.daily_max_tokens, w.retention, w.revision,
       (SELECT keep_days FROM audit_retention) AS audit_days, actor(u) AS owner, (
           SELECT json_build_object(
               'input_tokens', coalesce(sum(input_tokens), 0), 'cached_tokens', coalesce(sum(cached_tokens), 0),
               'cache_write_tokens', coalesce(sum(cache_write_tokens), 0),
               'output_tokens', coalesce(sum(output_tokens), 0), 'cost_usd', sum(cost_usd)
           )
           FROM daily_usage WHERE workspace_id = w.id AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date
       ) AS used_today
FROM workspaces w JOIN users u ON u.id = w.owner_id
"""
_GET = _SELECT + "WHERE w.id = %s"
_ALL = _SELECT + "ORDER BY w.id"
# Two servers that start at the same time on an empty database must create one workspace.
_LOCK_FIRST_START = "LOCK TABLE workspaces IN SHARE ROW EXCLUSIVE MODE"
_ANY_WORKSPACE = "SELECT EXISTS (SELECT FROM workspaces)"


async def add_workspace(connection: Connection, workspace_id: UUID, name: str, owner_id: UUID) -> None:
    await connection.execute(_ADD_WORKSPACE, (workspace_id, name, owner_id))


async def change(
    connection: Connection,
    workspace_id: UUID,
    name: str,
    max_key_days: int | None,
    owner_id: UUID,
    day: Limit,
    retention: RetentionDays,
) -> None:
    values = {"id": workspace_id, "name": name, "days": max_key_days, "owner": owner_id}
    limits = {"cost": day.max_cost_usd, "tokens": day.max_tokens}
    await connection.execute(_CHANGE, values | limits | {"retention": Jsonb(retention.set_days())})


async def get(connection: Connection, workspace_id: UUID, defaults: RetentionDays) -> WorkspaceBody | None:
    """`defaults`: the retention by the settings of the server. That of audit events is stored."""
    rows = await fetch_rows(connection, _GET, (workspace_id,))
    return _workspace(rows[0], defaults) if rows else None


async def all_workspaces(connection: Connection, defaults: RetentionDays) -> list[WorkspaceBody]:
    return [_workspace(row, defaults) for row in await fetch_rows(connection, _ALL)]


async def retention_of_all(connection: Connection) -> dict[UUID, RetentionDays]:
    """What is set, by workspace."""
    rows = await (await connection.execute(_RETENTION_OF_ALL)).fetchall()
    return {workspace_id: msgspec.convert(own, RetentionDays) for workspace_id, own in rows}


async def server_audit_days(connection: Connection) -> int | None:
    """None: audit events are kept for ever."""
    return await fetch_value(connection, _SERVER_AUDIT_DAYS)


async def lock_first_start(connection: Connection) -> None:
    await connection.execute(_LOCK_FIRST_START)


async def any_workspace(connection: Connection) -> bool:
    return await fetch_bool(connection, _ANY_WORKSPACE)


def _workspace(row: Row, defaults: RetentionDays) -> WorkspaceBody:
    retention = msgspec.convert(row["retention"], RetentionDays)
    limits = WorkspaceLimits(Limit(row["daily_max_cost_usd"], row["daily_max_tokens"]))
    in_force = retention_in_force(retention, replace(defaults, audit_days=row["audit_days"]))
    return as_record(WorkspaceBody, row | {"limits": limits, "retention": retention, "effective_retention": in_force})
