"""Finds what has stopped moving and sets it going again. Level-triggered: it looks at what is, so that no lost
wake-up, killed worker or forgotten job matters for longer than a round.
"""

from quarterdeck.conversations.runs import recovery_store as store
from quarterdeck.db.database import Connection, Database


async def recover(database: Database, lease_seconds: float, active_per_workspace: int) -> None:
    """Safe in every worker at once: rows that another has locked are left to it."""

    async def work(connection: Connection) -> None:
        await store.prune_workers(connection, lease_seconds)
        await store.replace_lost_jobs(connection)
        await store.delete_spent_jobs(connection)
        await store.add_missing_jobs(connection)
        await store.fill_places(connection, active_per_workspace)

    await database.transaction(work, repeatable=True)
