"""A session's log as it is read, and the channel on which its readers are told of news."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from quarterdeck.conversations.events.model import EventBody, Head
from quarterdeck.db.database import Connection

# Entries hold up to a megabyte each: a page ends where it has become large enough, however few it holds.
_PAGE = """
SELECT id, session_id, run_id, type, created_at, data, candidates FROM (
    SELECT e.*, count(*) OVER () AS candidates,
           sum(octet_length(e.data::text)) OVER (ORDER BY e.id) - octet_length(e.data::text) AS bytes_before
    FROM (
        SELECT id, session_id, run_id, type, created_at, data FROM session_events
        WHERE session_id = %s AND id > %s ORDER BY id LIMIT %s
    ) AS e
) AS sized
WHERE bytes_before < %s ORDER BY id
"""
_HEADS = """
SELECT s.id, s.workspace_id, (SELECT max(e.id) FROM session_events e WHERE e.session_id = s.id)
FROM sessions s WHERE s.id = ANY (%s)
"""
_LISTEN = "LISTEN quarterdeck_events"
_NOTIFY = "SELECT pg_notify('quarterdeck_events', payload) FROM unnest(%s::text[]) AS payload"


async def page(
    connection: Connection, session_id: UUID, after: int, count: int, page_bytes: int
) -> tuple[list[EventBody], bool]:
    """At most `count` entries, and whether there are more. At least one if there is any."""
    rows = await (await connection.execute(_PAGE, (session_id, after, count + 1, page_bytes))).fetchall()
    events = [EventBody(*row[:6]) for row in rows[:count]]
    return events, bool(rows) and rows[0][6] > len(events)


async def heads(connection: Connection, session_ids: Iterable[UUID]) -> dict[UUID, Head]:
    """How far the logs of these sessions go; without those that are gone."""
    rows = await (await connection.execute(_HEADS, (list(session_ids),))).fetchall()
    return {session_id: Head(workspace_id, last_id or 0) for session_id, workspace_id, last_id in rows}


async def listen(connection: Connection) -> None:
    await connection.execute(_LISTEN)


async def notify(connection: Connection, payloads: Sequence[str]) -> None:
    await connection.execute(_NOTIFY, (list(payloads),))
