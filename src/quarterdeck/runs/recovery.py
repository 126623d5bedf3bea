"""Repairs the job queue: finds runs without a job, jobs without a worker, and jobs without an active run.

It compares the current state of both tables. So a lost notification or a killed worker has no effect for longer than
one round.
"""

from uuid import UUID

from quarterdeck.db.database import Connection, Database
from quarterdeck.runs import store


async def recover(database: Database, lease_seconds: float, active_per_workspace: int | None) -> None:
    """Safe to run in all workers at once: rows that another worker has locked are skipped."""

    async def replace_lost(connection: Connection) -> None:
        await store.prune_workers(connection, lease_seconds)
        await store.replace_lost_jobs(connection)

    # Apart from the above: its time grows with the number of queued runs.
    async def compare(connection: Connection) -> None:
        await store.delete_spent_jobs(connection)
        await store.add_missing_jobs(connection)
        await store.start_parked_runs(connection, active_per_workspace)

    await database.transaction(replace_lost, repeatable=True)
    await database.transaction(compare, repeatable=True)


# Workspaces take turns at the slots of workers: which runs must leave theirs, because other workspaces wait.
#
# The queue itself chooses which run gets a free slot (db/functions/turns.sql).


async def runs_to_leave(database: Database, *, no_slot_free: bool) -> list[UUID]:
    """Of all workers. A worker that has a free slot asks nobody to leave: it takes a waiting run itself."""

    async def work(connection: Connection) -> list[UUID]:
        if no_slot_free:
            await store.ask_to_leave(connection)
        return await store.leaving(connection)

    return await database.transaction(work, repeatable=True)
