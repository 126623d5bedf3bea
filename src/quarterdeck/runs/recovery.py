"""Repairs the job queue: finds runs without a job, jobs without a worker, and jobs without an active run.

It compares the current state of both tables. So a lost notification or a killed worker has no effect for longer than
one round.
"""

from uuid import UUID

from quarterdeck.db.database import Database
from quarterdeck.runs import store


async def recover(database: Database, lease_seconds: float, active_per_workspace: int | None) -> None:
    """Safe to run in all workers at once: rows that another worker has locked are skipped."""
    await database.transaction(store.replace_lost_jobs, lease_seconds, repeatable=True)
    # A transaction of its own: its time grows with the number of queued runs.
    await database.transaction(store.compare_jobs, active_per_workspace, repeatable=True)


async def runs_to_leave(database: Database, *, no_slot_free: bool) -> list[UUID]:
    """The runs of all workers that must leave their slots, because other workspaces wait. A worker that has a free slot
    asks nobody to leave: it takes a waiting run itself. Which one, the queue chooses (db/functions/turns.sql)."""
    return await database.transaction(store.leaving, no_slot_free, repeatable=True)
