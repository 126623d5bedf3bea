"""Repairs the job queue: finds runs without a job, jobs without a worker and jobs without an active run.

It compares the current state of both tables. So a lost notification or a killed worker has no effect for longer than
one round.
"""

from quarterdeck.conversations.runs import recovery_store as store
from quarterdeck.db.database import Connection, Database


async def recover(database: Database, lease_seconds: float, active_per_workspace: int | None) -> None:
    """Safe to run in all workers at once: rows that another worker has locked are skipped."""

    async def work(connection: Connection) -> None:
        await store.prune_workers(connection, lease_seconds)
        await store.replace_lost_jobs(connection)
        await store.delete_spent_jobs(connection)
        await store.add_missing_jobs(connection)
        await store.start_parked_runs(connection, active_per_workspace)

    await database.transaction(work, repeatable=True)
