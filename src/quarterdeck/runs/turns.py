"""Workspaces take turns at the places of workers: which runs must leave theirs, because other workspaces wait.

The queue itself chooses which run gets a free place (db/functions/turns.sql).
"""

from uuid import UUID

from quarterdeck.db.database import Connection, Database
from quarterdeck.runs import turns_store as store


async def runs_to_leave(database: Database, *, no_place_free: bool) -> list[UUID]:
    """Of all workers. A worker that has a free place asks nobody to leave: it takes a waiting run itself."""

    async def work(connection: Connection) -> list[UUID]:
        if no_place_free:
            await store.ask_to_leave(connection)
        return await store.leaving(connection)

    return await database.transaction(work, repeatable=True)
