"""Audit events in the database. They are added and, after their time, removed; never changed."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.access.model import Principal
from quarterdeck.audit.model import AuditEventBody, AuditFilter, Change, ObjectType, Origin
from quarterdeck.db.database import Connection
from quarterdeck.ids import HIGHEST_ID, LOWEST_ID, created_at, first_id_at
from quarterdeck.workspaces.model import ActorBody

_ADD = """
INSERT INTO audit_events
    (id, workspace_id, action, object_type, object_id, user_id, api_key_id, session_token_id, address, request_id,
     detail)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_NEWEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.id >= %s AND a.id < %s
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
ORDER BY a.id DESC LIMIT %s
"""
_OLDEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.id >= %s AND a.id < %s
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
ORDER BY a.id LIMIT %s
"""
# Those of one object and of one person have statements of their own: with "IS NULL OR" no index is searched for them.
# The bounds name the object again, so that they are of use to its index alone. Bounds on the id would be as good for
# the index of all events, and a plan made while the table was small or new may then look through all of them.
_OF_OBJECT_NEWEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.object_id = %s
  AND (a.object_id, a.id) >= (%s, %s) AND (a.object_id, a.id) < (%s, %s)
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
  AND (%s::uuid IS NULL OR a.user_id = %s)
ORDER BY a.id DESC LIMIT %s
"""
_OF_OBJECT_OLDEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.object_id = %s
  AND (a.object_id, a.id) >= (%s, %s) AND (a.object_id, a.id) < (%s, %s)
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
  AND (%s::uuid IS NULL OR a.user_id = %s)
ORDER BY a.id LIMIT %s
"""
_OF_USER_NEWEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.user_id = %s
  AND (a.user_id, a.id) >= (%s, %s) AND (a.user_id, a.id) < (%s, %s)
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
ORDER BY a.id DESC LIMIT %s
"""
_OF_USER_OLDEST_FIRST = """
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE a.workspace_id = %s AND a.user_id = %s
  AND (a.user_id, a.id) >= (%s, %s) AND (a.user_id, a.id) < (%s, %s)
  AND (%s::text IS NULL OR a.action = %s) AND (%s::text IS NULL OR a.object_type = %s)
ORDER BY a.id LIMIT %s
"""
# The cutoff is the lowest id of its millisecond, by the database's clock: one for all processes. now(), because no
# index is searched for what clock_timestamp() says.
_SWEEP = """
DELETE FROM audit_events WHERE id IN (
    SELECT id FROM audit_events
    WHERE id < rpad(
        lpad(to_hex((extract(epoch FROM now() - make_interval(days => %s)) * 1000)::bigint), 12, '0'), 32, '0'
    )::uuid
    ORDER BY id LIMIT %s
    FOR UPDATE SKIP LOCKED
)
"""


async def add(
    connection: Connection, event_id: UUID, workspace_id: UUID, change: Change, who: Principal | None, origin: Origin
) -> None:
    actor = (None, None, None) if who is None else (who.user_id, who.api_key_id, who.session_token_id)
    await connection.execute(
        _ADD,
        (
            event_id,
            workspace_id,
            change.action,
            change.object_type,
            change.object_id,
            *actor,
            origin.address,
            origin.request_id,
            Jsonb(change.detail),
        ),
    )


async def page(
    connection: Connection, workspace_id: UUID, wanted: AuditFilter, start: UUID, count: int, *, newest_first: bool
) -> list[AuditEventBody]:
    """`count` events from `start` on, itself included."""
    first, end = _span(wanted, start, newest_first=newest_first)
    others = (wanted.action, wanted.action, wanted.object_type, wanted.object_type)
    values: tuple[object, ...]
    if wanted.object_id is not None:
        query = _OF_OBJECT_NEWEST_FIRST if newest_first else _OF_OBJECT_OLDEST_FIRST
        one = wanted.object_id
        values = (one, one, first, one, end, *others, wanted.user_id, wanted.user_id)
    elif wanted.user_id is not None:
        query = _OF_USER_NEWEST_FIRST if newest_first else _OF_USER_OLDEST_FIRST
        one = wanted.user_id
        values = (one, one, first, one, end, *others)
    else:
        query = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
        values = (first, end, *others)
    rows = await (await connection.execute(query, (workspace_id, *values, count))).fetchall()
    return [_body(row) for row in rows]


async def delete_old(connection: Connection, keep_days: int, batch: int) -> int:
    return (await connection.execute(_SWEEP, (keep_days, batch))).rowcount


def _span(wanted: AuditFilter, start: UUID, *, newest_first: bool) -> tuple[UUID, UUID]:
    """The first id that may be in the page, and the one before which it ends."""
    first = LOWEST_ID if wanted.since is None else first_id_at(wanted.since)
    end = HIGHEST_ID if wanted.until is None else first_id_at(wanted.until)
    if newest_first:
        return first, min(end, UUID(int=min(start.int + 1, HIGHEST_ID.int)))
    return max(first, start), end


def _body(row: tuple[Any, ...]) -> AuditEventBody:
    event_id, action, object_type, object_id, *actor, api_key_id, token_id, address, request_id, detail = row
    return AuditEventBody(
        id=event_id,
        created_at=created_at(event_id),
        action=action,
        object_type=ObjectType(object_type),
        object_id=object_id,
        actor=None if actor[0] is None else ActorBody(*actor),
        api_key_id=api_key_id,
        session_token_id=token_id,
        address=address,
        request_id=request_id,
        detail=detail,
    )
