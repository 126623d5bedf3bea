"""The session's log in the database. Whoever appends holds the session's lock."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.db.database import Connection
from quarterdeck.events.model import EventBody, EventType, NewEvent

# Every writer of a session takes it first, in a statement of its own: what follows must see what the last holder
# committed, and ids drawn under it are in commit order.
_LOCK = "SELECT pg_advisory_xact_lock(session_lock(%s))"
_APPEND = "INSERT INTO session_events (session_id, run_id, type, data, record) VALUES (%s, %s, %s, %s, %s)"
_PAGE = """
SELECT id, session_id, run_id, type, created_at, data FROM session_events
WHERE session_id = %s AND id > %s ORDER BY id LIMIT %s
"""


async def lock_session(connection: Connection, session_id: UUID) -> None:
    await connection.execute(_LOCK, (session_id,))


async def append(connection: Connection, session_id: UUID, run_id: UUID, events: Sequence[NewEvent]) -> None:
    rows = [
        (session_id, run_id, event.type, Jsonb(event.data), None if event.record is None else Jsonb(event.record))
        for event in events
    ]
    await connection.cursor().executemany(_APPEND, rows)


async def page(connection: Connection, session_id: UUID, after: int, count: int) -> list[EventBody]:
    rows = await (await connection.execute(_PAGE, (session_id, after, count))).fetchall()
    return [_body(row) for row in rows]


def _body(row: tuple[Any, ...]) -> EventBody:
    event_id, session_id, run_id, type_, created_at, data = row
    return EventBody(event_id, session_id, run_id, EventType(type_), created_at, data)
