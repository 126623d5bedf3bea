"""Audit events in the database. They are added and, after their time, removed; never changed."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.audit.model import AuditEventBody, AuditFilter, Change, ObjectType
from quarterdeck.core.actors import ActorBody, Origin, Principal
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, created_at, first_id_at
from quarterdeck.db.database import Connection

_ADD = """
INSERT INTO audit_events
    (id, workspace_id, action, object_type, object_id, user_id, api_key_id, session_token_id, address, request_id,
     detail)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
# What a list is searched by: the first of these that is asked for, the narrowest as a rule. Each has an index. The
# others are looked at in what was found.
_LEADS = ("object_id", "action", "user_id", "object_type")


def _page_query(lead: str | None, *, newest_first: bool) -> str:
    """Only one index serves: the order names the column that is searched by, bounds stand for "equal to", and
    coalesce hides the other filters. With "action = … ORDER BY id" the index of all events would do too, and a plan
    that was made while the table was empty may then look through all of them."""
    columns = [f"a.{lead or 'workspace_id'}", "a.id"]
    place, bound = f"({', '.join(columns)})", f"({', '.join(['%s'] * len(columns))})"
    order = ", ".join(f"{column} {'DESC' if newest_first else 'ASC'}" for column in columns)
    # No bounds on the filtered column beside these: the search of the index would begin at them, not at the cursor.
    equal = "a.workspace_id = %s AND " if lead else ""
    # Every part is written above.
    return f"""
SELECT a.id, a.action, a.object_type, a.object_id, a.user_id, u.display_name, u.email, a.api_key_id,
       a.session_token_id, a.address, a.request_id, a.detail
FROM audit_events a LEFT JOIN users u ON u.id = a.user_id
WHERE {equal}{place} >= {bound} AND {place} < {bound}
  AND coalesce(a.action = %s, %s::text IS NULL) AND coalesce(a.user_id = %s, %s::uuid IS NULL)
  AND coalesce(a.object_type = %s, %s::text IS NULL)
ORDER BY {order} LIMIT %s
"""  # noqa: S608


_PAGES = {
    (lead, newest_first): _page_query(lead, newest_first=newest_first)
    for lead in (None, *_LEADS)
    for newest_first in (True, False)
}
_EXPIRE = "SELECT expire_audit_events(%s)"


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
    query, values = _page(workspace_id, wanted, start, newest_first=newest_first)
    rows = await (await connection.execute(query, (*values, count))).fetchall()
    return [_body(row) for row in rows]


async def delete_old(connection: Connection, batch: int) -> int:
    """How old is old is known to the database, where this process cannot change it."""
    row = await (await connection.execute(_EXPIRE, (batch,))).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def _page(
    workspace_id: UUID, wanted: AuditFilter, start: UUID, *, newest_first: bool
) -> tuple[str, tuple[object, ...]]:
    """The statement, and all its values but the number of events."""
    first, end = _span(wanted, start, newest_first=newest_first)
    lead = next((name for name in _LEADS if getattr(wanted, name) is not None), None)
    place = workspace_id if lead is None else getattr(wanted, lead)
    equal = () if lead is None else (workspace_id,)
    others = (wanted.action, wanted.action, wanted.user_id, wanted.user_id, wanted.object_type, wanted.object_type)
    return _PAGES[lead, newest_first], (*equal, place, first, place, end, *others)


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
