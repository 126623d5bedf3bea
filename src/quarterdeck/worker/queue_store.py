"""Procrastinate's queue with turns: a free place goes to the workspace whose turn it is, not to the oldest job."""

from collections import deque
from collections.abc import Callable, Iterable

from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

# The columns that the library reads, and how long the job has waited.
_NEXT = """
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id,
       extract(epoch FROM clock_timestamp() - greatest(queued_at, scheduled_at))::float8 AS waited_seconds
FROM next_run_jobs(%(worker_id)s, %(places)s, %(count)s)
"""
# Unlike the library's function, it does not fail if the job is gone: recovery may have replaced it.
_DELETE = "DELETE FROM jobs.procrastinate_jobs WHERE id = %(job_id)s"
_RELEASE = "SELECT release_run_jobs(%(job_ids)s)"
# Fetched by one statement. Few, since other workers may be idle.
_FETCHED_AT_ONCE = 8


class TurnsJobManager(JobManager):
    """Fetches several jobs at once. Those that the library has not asked for yet wait here, for less than a moment:
    never more are fetched than places are free."""

    def __init__(self, connector: BaseAsyncConnector, places: int, on_taken: Callable[[float], None]) -> None:
        """`on_taken` is called with the seconds that a job has waited."""
        super().__init__(connector)
        self._places = places
        self._on_taken = on_taken
        # The jobs that the library has asked for and not finished.
        self._in_progress = 0
        self._fetched: deque[Job] = deque()
        self._deleted: set[int] = set()

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        if not self._fetched:
            count = min(max(self._places - self._in_progress, 1), _FETCHED_AT_ONCE)
            rows = await self.connector.execute_query_all_async(
                query=_NEXT, worker_id=worker_id, places=self._places, count=count
            )
            for row in rows:
                self._on_taken(row["waited_seconds"])
                self._fetched.append(Job.from_row(row))
        if not self._fetched:
            return None
        self._in_progress += 1
        return self._fetched.popleft()

    def deleted(self, job: Job) -> None:
        """The job was deleted in the transaction that ended its run."""
        assert job.id is not None
        self._deleted.add(job.id)

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        assert job.id is not None
        self._in_progress -= 1
        if job.id in self._deleted:
            self._deleted.remove(job.id)
        else:
            await self.connector.execute_query_async(query=_DELETE, job_id=job.id)

    async def unregister_worker(self, worker_id: int) -> None:
        """A worker that stops leaves the jobs that it has not begun to others."""
        try:
            if self._fetched:
                await self.connector.execute_query_async(query=_RELEASE, job_ids=[job.id for job in self._fetched])
                self._fetched.clear()
        finally:
            # If the jobs could not be released, recovery finds them sooner without the worker.
            await super().unregister_worker(worker_id)
