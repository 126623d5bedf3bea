"""Retention of sessions: events, actions and runs by the age of the run, and the files of sessions that are not used.

Nothing here waits for a session that is in use: it is looked at again in the next round.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.ids import LOWEST_ID
from quarterdeck.core.retention import RetentionDays
from quarterdeck.db.database import Connection, Database
from quarterdeck.session_files import service as session_files
from quarterdeck.sessions import expiry_store as store
from quarterdeck.sessions.expiry_store import Expired

# Sessions that are looked for with one statement.
_PAGE = 500
# Rows that one transaction deletes. It holds the locks of the sessions that it has emptied, so it is short.
_MAX_ROWS = 1000
_MAX_SECONDS = 0.3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeletedLogs(Struct, frozen=True):
    events: int = 0
    runs: int = 0


async def expire_logs(database: Database, workspace_id: UUID, retention: RetentionDays) -> DeletedLogs:
    """`retention`: of this workspace. With `run_days` it has `event_days`, which are no longer."""
    event_days, run_days = retention.event_days, retention.run_days
    deleted = DeletedLogs()
    if event_days is None:
        return deleted
    searches = [
        _search(database, store.with_old_inputs, workspace_id, (_EPOCH, 0), event_days),
        _search(database, store.old_forks, workspace_id, LOWEST_ID, event_days),
    ]
    if run_days is not None:
        searches.append(_search(database, store.with_old_runs, workspace_id, LOWEST_ID, run_days))
    for search in searches:
        async for session_ids in search:
            expired = await _expire(database, session_ids, event_days, run_days)
            deleted = DeletedLogs(deleted.events + expired.events, deleted.runs + expired.runs)
    return deleted


async def expire_files(database: Database, days: int | None, shortest_days: int) -> int:
    """Deletes the files of sessions in which no run was active. `days`: the retention of the server, or None.
    `shortest_days`: of all workspaces. Returns the number of files."""
    deleted = 0
    after = LOWEST_ID
    while True:
        found = await database.read(store.with_files, after, shortest_days, _PAGE)
        for session_id in await database.read(store.idle, found, days):
            deleted += await _clear(database, session_id, days)
        if len(found) < _PAGE:
            return deleted
        after = found[-1]


async def _clear(database: Database, session_id: UUID, days: int | None) -> int:
    async def work(connection: Connection) -> int:
        if not await store.lock(connection, session_id):
            return 0
        # Again, with the lock: a run may have begun.
        if not await store.idle(connection, [session_id], days):
            return 0
        return await session_files.clear(connection, session_id)

    return await database.transaction(work, repeatable=True)


async def _expire(database: Database, session_ids: Sequence[UUID], event_days: int, run_days: int | None) -> Expired:
    events = runs = done = 0
    while done < len(session_ids):
        expired = await database.transaction(
            store.expire, session_ids[done:], event_days, run_days, _MAX_ROWS, _MAX_SECONDS, repeatable=True
        )
        events, runs, done = events + expired.events, runs + expired.runs, done + expired.sessions_done
    return Expired(events, runs, done)


async def _search(
    database: Database,
    find: Callable[[Connection, UUID, Any, int, int], Awaitable[Sequence[tuple[UUID | None, Any]]]],
    workspace_id: UUID,
    after: object,
    days: int,
) -> AsyncIterator[list[UUID]]:
    """Pages of sessions. `find` returns each with its place in the list. None: nothing to do."""
    while True:
        found = await database.read(find, workspace_id, after, days, _PAGE)
        yield list(dict.fromkeys(session_id for session_id, _ in found if session_id is not None))
        if len(found) < _PAGE:
            return
        after = found[-1][1]
