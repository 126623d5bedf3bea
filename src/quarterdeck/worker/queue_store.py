"""Procrastinate's queue with turns: a free place goes to the workspace whose turn it is, not to the oldest job."""

from collections.abc import Callable, Iterable

from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

# The columns that the library reads, and how long the job has waited.
_NEXT = """
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id,
       extract(epoch FROM clock_timestamp() - greatest(queued_at, scheduled_at))::float8 AS waited_seconds
FROM next_run_job(%(worker_id)s, %(places)s)
"""


class TurnsJobManager(JobManager):
    def __init__(self, connector: BaseAsyncConnector, places: int, on_taken: Callable[[float], None]) -> None:
        """`on_taken` is called with the seconds that a job has waited."""
        super().__init__(connector)
        self._places = places
        self._on_taken = on_taken

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        row = await self.connector.execute_query_one_async(query=_NEXT, worker_id=worker_id, places=self._places)
        if row["id"] is None:
            return None
        self._on_taken(row["waited_seconds"])
        return Job.from_row(row)
