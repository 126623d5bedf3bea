"""Writes to a session's log. Every writer holds the session's lock."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from quarterdeck.db.database import Connection
from quarterdeck.events.model import NewEvent

# Taken first by every writer of a session, in a separate statement: the statements that follow must see what the
# previous holder committed. Event ids are assigned under it, so they are in commit order.
_LOCK = "SELECT pg_advisory_xact_lock(session_lock(%s))"
_APPEND = "INSERT INTO session_events (session_id, run_id, type, data, record) VALUES (%s, %s, %s, %s, %s)"


async def lock_session(connection: Connection, session_id: UUID) -> None:
    await connection.execute(_LOCK, (session_id,))


async def append(connection: Connection, session_id: UUID, run_id: UUID | None, events: Sequence[NewEvent]) -> None:
    rows = [
        (session_id, run_id, event.type, Jsonb(event.data), None if event.record is None else Jsonb(event.record))
        for event in events
    ]
    await connection.cursor().executemany(_APPEND, rows)
