"""SQL that reads session logs, and the notification channel."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.events.model import EventBody, Head

_PAGE = "SELECT event_id, run_id, type, created_at, data, followed FROM read_log(%s, %s, %s, %s)"
_BEFORE_LAST = "SELECT id FROM session_events WHERE session_id = %s ORDER BY id DESC OFFSET %s LIMIT 1"
_HEADS = """
SELECT s.id, s.workspace_id, (SELECT max(e.id) FROM session_events e WHERE e.session_id = s.id)
FROM sessions s WHERE s.id = ANY (%s::uuid[])
"""
_LISTEN = "LISTEN quarterdeck_events"
_NOTIFY = "SELECT pg_notify('quarterdeck_events', payload) FROM unnest(%s::text[]) AS payload"
# To workers.
_NOTIFY_READERS = "SELECT pg_notify('quarterdeck_readers', payload) FROM unnest(%s::text[]) AS payload"


async def page(
    connection: Connection, session_id: UUID, after: int, count: int, page_bytes: int
) -> tuple[list[EventBody], bool]:
    """At most `count` events that fill `page_bytes`, at least one if any is left, and whether there are more."""
    rows = await (await connection.execute(_PAGE, (session_id, after, count, page_bytes))).fetchall()
    events = [EventBody(event_id, session_id, *rest) for event_id, *rest, _ in rows]
    return events, bool(rows) and rows[-1][-1]


async def id_before_last(connection: Connection, session_id: UUID, count: int) -> int:
    """The id of the event before the last `count` events. 0 if there is none."""
    row = await (await connection.execute(_BEFORE_LAST, (session_id, count))).fetchone()
    return 0 if row is None else row[0]


async def heads(connection: Connection, session_ids: Iterable[UUID]) -> dict[UUID, Head]:
    """The ends of these logs. Deleted sessions are missing from the result."""
    rows = await (await connection.execute(_HEADS, (list(session_ids),))).fetchall()
    return {session_id: Head(workspace_id, last_id or 0) for session_id, workspace_id, last_id in rows}


async def listen(connection: Connection) -> None:
    await connection.execute(_LISTEN)


async def notify(connection: Connection, payloads: Sequence[str]) -> None:
    await connection.execute(_NOTIFY, (list(payloads),))


async def notify_readers(connection: Connection, payloads: Sequence[str]) -> None:
    await connection.execute(_NOTIFY_READERS, (list(payloads),))
