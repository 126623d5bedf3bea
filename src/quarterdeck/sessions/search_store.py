"""SQL for the search in conversations: docs/decisions/0051."""

from uuid import UUID

from quarterdeck.core import errors
from quarterdeck.core.pages import bounds
from quarterdeck.db import driver_errors
from quarterdeck.db.database import Connection

# Of texts. So many are fetched and sorted in a few hundredths of a second.
MAX_MATCHES = 10_000

_MATCHING = "SELECT matching_sessions(%s, %s, %s)"
_AMONG = """
SELECT id FROM sessions
WHERE workspace_id = %s AND id = ANY (%s) AND id BETWEEN %s AND %s AND (archived_at IS NOT NULL) = %s
"""
_BACKFILL = "SELECT backfill_conversation_words(%s, %s)"
_PURGE = """
DELETE FROM conversation_words
WHERE ctid = ANY (ARRAY(SELECT ctid FROM conversation_words WHERE session_id = %s ORDER BY event_id LIMIT %s))
"""


def _walk_query(*, archived: bool, newest_first: bool) -> str:
    """Reads the sessions in order and tests the texts of each. OFFSET 0 keeps PostgreSQL from collecting all matches
    first; the query is made once, in a subquery of its own."""
    order = "DESC" if newest_first else "ASC"
    # All parts of the statement are constants.
    return f"""
SELECT id FROM sessions
WHERE (workspace_id, id) BETWEEN (%s, %s) AND (%s, %s) AND archived_at IS {"NOT NULL" if archived else "NULL"}
  AND EXISTS (
      SELECT FROM conversation_words w
      WHERE w.session_id = sessions.id AND w.words @@ (SELECT search_query(%s, %s)) OFFSET 0
  )
ORDER BY workspace_id {order}, id {order} LIMIT %s
"""  # noqa: S608


_WALKS = {
    (archived, newest_first): _walk_query(archived=archived, newest_first=newest_first)
    for archived in (True, False)
    for newest_first in (True, False)
}


async def find(
    connection: Connection,
    workspace_id: UUID,
    start: UUID,
    count: int,
    *,
    archived: bool,
    search: str,
    newest_first: bool,
    max_matches: int = MAX_MATCHES,
) -> list[UUID]:
    """The ids of `count` sessions from `start` on, inclusive, whose conversation matches.

    All matches come from the index, which has no order. If there are too many to sort, matches are frequent, and the
    first sessions that have one are soon found in order."""
    lowest, highest = bounds(start, newest_first=newest_first)
    among = (lowest, highest, archived, newest_first)
    try:
        found = await _find(connection, workspace_id, search, among, count, max_matches)
    except driver_errors.TIMED_OUT as fault:
        raise errors.search_too_slow() from fault
    return sorted(found, reverse=newest_first)[:count]


async def _find(
    connection: Connection,
    workspace_id: UUID,
    search: str,
    among: tuple[UUID, UUID, bool, bool],
    count: int,
    max_matches: int,
) -> list[UUID]:
    lowest, highest, archived, newest_first = among
    rows = await (await connection.execute(_MATCHING, (workspace_id, search, max_matches))).fetchall()
    matching = [session_id for (session_id,) in rows]
    if matching == [None]:
        values = (workspace_id, lowest, workspace_id, highest, workspace_id, search, count)
        rows = await (await connection.execute(_WALKS[archived, newest_first], values)).fetchall()
    elif matching:
        rows = await (await connection.execute(_AMONG, (workspace_id, matching, lowest, highest, archived))).fetchall()
    return [session_id for (session_id,) in rows]


async def backfill(connection: Connection, batch: int, max_seconds: float) -> int:
    row = await (await connection.execute(_BACKFILL, (batch, max_seconds))).fetchone()
    assert row is not None
    events: int = row[0]
    return events


async def purge(connection: Connection, session_id: UUID, batch: int) -> int:
    return (await connection.execute(_PURGE, (session_id, batch))).rowcount
