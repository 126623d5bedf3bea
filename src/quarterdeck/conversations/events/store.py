"""SQL that reads session logs, and the notification channel."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from quarterdeck.conversations.events.model import EventBody, Head
from quarterdeck.db.database import Connection

# Events hold up to a megabyte each, so a page is also limited by its size in bytes. One event after the other, until
# either limit is passed: a window function would read and convert all events that the first limit allows, 200 MiB for a
# page of 4. The last event is not shown if it is beyond a limit; it tells that there are more.
_PAGE = """
WITH RECURSIVE taken AS (
    (
        SELECT id, session_id, run_id, type, created_at, data, 0::bigint AS bytes_before, 1 AS place
        FROM session_events WHERE session_id = %s AND id > %s ORDER BY id LIMIT 1
    )
    UNION ALL
    SELECT e.id, e.session_id, e.run_id, e.type, e.created_at, e.data,
           taken.bytes_before + octet_length(taken.data::text), taken.place + 1
    FROM taken CROSS JOIN LATERAL (
        SELECT * FROM session_events s WHERE s.session_id = taken.session_id AND s.id > taken.id ORDER BY s.id LIMIT 1
    ) AS e
    WHERE taken.bytes_before < %s AND taken.place <= %s
)
SELECT id, session_id, run_id, type, created_at, data, (SELECT count(*) FROM taken)
FROM taken WHERE bytes_before < %s AND place <= %s ORDER BY id
"""
_HEADS = """
SELECT s.id, s.workspace_id, (SELECT max(e.id) FROM session_events e WHERE e.session_id = s.id)
FROM sessions s WHERE s.id = ANY (%s::uuid[])
"""
_LISTEN = "LISTEN quarterdeck_events"
_NOTIFY = "SELECT pg_notify('quarterdeck_events', payload) FROM unnest(%s::text[]) AS payload"


async def page(
    connection: Connection, session_id: UUID, after: int, count: int, page_bytes: int
) -> tuple[list[EventBody], bool]:
    """At most `count` events, at least one if any is left, and whether there are more."""
    values = (session_id, after, page_bytes, count, page_bytes, count)
    rows = await (await connection.execute(_PAGE, values)).fetchall()
    return [EventBody(*row[:6]) for row in rows], bool(rows) and rows[0][6] > len(rows)


async def heads(connection: Connection, session_ids: Iterable[UUID]) -> dict[UUID, Head]:
    """The ends of these logs. Deleted sessions are missing from the result."""
    rows = await (await connection.execute(_HEADS, (list(session_ids),))).fetchall()
    return {session_id: Head(workspace_id, last_id or 0) for session_id, workspace_id, last_id in rows}


async def listen(connection: Connection) -> None:
    await connection.execute(_LISTEN)


async def notify(connection: Connection, payloads: Sequence[str]) -> None:
    await connection.execute(_NOTIFY, (list(payloads),))
