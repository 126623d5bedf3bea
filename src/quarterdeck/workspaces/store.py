"""SQL for users, workspaces and members."""

from uuid import UUID

import msgspec
from msgspec.structs import replace
from psycopg.types.json import Jsonb

from quarterdeck.agents.configuration import Limit
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.retention import RetentionDays, retention_in_force
from quarterdeck.db.database import Connection
from quarterdeck.db.records import (
    Pages,
    Row,
    as_record,
    fetch_bool,
    fetch_column,
    fetch_record,
    fetch_rows,
    fetch_value,
)
from quarterdeck.workspaces.model import MemberBody, WorkspaceBody, WorkspaceLimits

_ADD_USER = """
INSERT INTO users (id, email) VALUES (%s, %s)
ON CONFLICT (lower(email)) DO UPDATE SET email = users.email
RETURNING id
"""
_USER = """
SELECT id AS user_id, display_name, email AS primary_email FROM users
WHERE lower(email) = lower(%s) FOR NO KEY UPDATE
"""
_NAME_USER = "UPDATE users SET display_name = %s WHERE id = %s"
_WORKSPACES_OF_USER = "SELECT workspace_id FROM members WHERE user_id = %s ORDER BY workspace_id"
_ADD_WORKSPACE = "INSERT INTO workspaces (id, name, owner_id) VALUES (%s, %s, %s)"
# Not FOR UPDATE: creating a key takes a share lock on the workspace. It would wait for us while we wait for the lock of
# the credential that creates the key.
_OWNER = "SELECT owner_id FROM workspaces WHERE id = %s FOR NO KEY UPDATE"
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
_ADD_MEMBER = """
INSERT INTO members (workspace_id, user_id) VALUES (%s, %s)
ON CONFLICT (workspace_id, user_id) DO UPDATE SET ended_at = NULL, joined_at = clock_timestamp()
WHERE members.ended_at IS NOT NULL
"""
_END_MEMBER = """
UPDATE members SET ended_at = clock_timestamp() WHERE workspace_id = %s AND user_id = %s AND ended_at IS NULL
"""
_MEMBER = """
SELECT m.user_id, m.ended_at IS NULL
FROM members m JOIN users u ON u.id = m.user_id
WHERE m.workspace_id = %s AND lower(u.email) = lower(%s)
"""
_MEMBERS = Pages(
    MemberBody,
    table="members",
    id_column="user_id",
    columns="""actor(u) AS user, CASE u.id WHEN w.owner_id THEN 'owner' ELSE 'member' END AS role, r.joined_at,
        r.ended_at""",
    joins="JOIN users u ON u.id = r.user_id JOIN workspaces w ON w.id = r.workspace_id",
)
members = _MEMBERS.page


async def add_user(connection: Connection, user_id: UUID, email: str) -> UUID:
    """The id of the new or existing user with this address."""
    found = await fetch_value(connection, _ADD_USER, (user_id, email))
    assert isinstance(found, UUID)
    return found


async def lock_user(connection: Connection, email: str) -> ActorBody | None:
    return await fetch_record(connection, ActorBody, _USER, (email,))


async def name_user(connection: Connection, user_id: UUID, display_name: str | None) -> None:
    await connection.execute(_NAME_USER, (display_name, user_id))


async def workspaces_of_user(connection: Connection, user_id: UUID) -> list[UUID]:
    """Including workspaces that the user has left."""
    return await fetch_column(connection, _WORKSPACES_OF_USER, (user_id,))


async def add_workspace(connection: Connection, workspace_id: UUID, name: str, owner_id: UUID) -> None:
    await connection.execute(_ADD_WORKSPACE, (workspace_id, name, owner_id))


async def lock_workspace(connection: Connection, workspace_id: UUID) -> UUID | None:
    """Returns the owner. Changes to members and their keys are serialised by this lock."""
    return await fetch_value(connection, _OWNER, (workspace_id,))


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


async def add_member(connection: Connection, workspace_id: UUID, user_id: UUID) -> bool:
    """False if the user was a member already."""
    return (await connection.execute(_ADD_MEMBER, (workspace_id, user_id))).rowcount == 1


async def end_member(connection: Connection, workspace_id: UUID, user_id: UUID) -> bool:
    """False if the user was not a member."""
    return (await connection.execute(_END_MEMBER, (workspace_id, user_id))).rowcount == 1


async def find_member(connection: Connection, workspace_id: UUID, email: str) -> tuple[UUID, bool] | None:
    """The user's id, and whether the user is still a member."""
    row = await (await connection.execute(_MEMBER, (workspace_id, email))).fetchone()
    return None if row is None else (row[0], row[1])


def _workspace(row: Row, defaults: RetentionDays) -> WorkspaceBody:
    retention = msgspec.convert(row["retention"], RetentionDays)
    limits = WorkspaceLimits(Limit(row["daily_max_cost_usd"], row["daily_max_tokens"]))
    in_force = retention_in_force(retention, replace(defaults, audit_days=row["audit_days"]))
    return as_record(WorkspaceBody, row | {"limits": limits, "retention": retention, "effective_retention": in_force})
