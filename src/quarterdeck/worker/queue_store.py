"""Procrastinate's queue with turns: a free place goes to the workspace whose turn it is, not to the oldest job."""

from collections.abc import Iterable

from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

# The columns that the library reads.
_NEXT = """
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id
FROM next_run_job(%(worker_id)s, %(places)s)
"""


class TurnsJobManager(JobManager):
    def __init__(self, connector: BaseAsyncConnector, places: int) -> None:
        super().__init__(connector)
        self._places = places

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        row = await self.connector.execute_query_one_async(query=_NEXT, worker_id=worker_id, places=self._places)
        return None if row["id"] is None else Job.from_row(row)
