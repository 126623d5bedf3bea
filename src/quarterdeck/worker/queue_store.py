"""Procrastinate's queue, with connections of ours and with turns: a free slot goes to the workspace whose turn it is,
not to the oldest job."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from procrastinate import PsycopgConnector
from procrastinate.connector import BaseAsyncConnector, Notify
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.migrate import JOBS_SCHEMA
from quarterdeck.db.pool import (
    RECONNECT_SECONDS,
    SCHEMA,
    Connection,
    LivingPool,
    as_begin,
    connection_kwargs,
    role_settings,
    transaction_with_settings,
)

# The columns that the library reads, and how long the job has waited.
_NEXT = """
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id,
       extract(epoch FROM clock_timestamp() - greatest(queued_at, scheduled_at))::float8 AS waited_seconds
FROM next_run_jobs(%(worker_id)s, %(slots)s, %(count)s)
"""
# Unlike the library's function, it does not fail if the job is gone: recovery may have replaced it.
_DELETE = "DELETE FROM jobs.procrastinate_jobs WHERE id = %(job_id)s"
_RELEASE = "SELECT release_run_jobs(%(job_ids)s)"
# Fetched by one statement. Few, since other workers may be idle.
_FETCHED_AT_ONCE = 8


class TurnsJobManager(JobManager):
    """Fetches several jobs at once. Those that the library has not asked for yet wait here, for less than a moment:
    never more are fetched than slots are free."""

    def __init__(self, connector: BaseAsyncConnector, slots: int, on_taken: Callable[[float], None]) -> None:
        """`on_taken` is called with the seconds that a job has waited."""
        super().__init__(connector)
        self._slots = slots
        self._on_taken = on_taken
        # The jobs that the library has asked for and not finished.
        self._in_progress = 0
        self._fetched: deque[Job] = deque()
        self._deleted: set[int] = set()

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        if not self._fetched:
            count = min(max(self._slots - self._in_progress, 1), _FETCHED_AT_ONCE)
            rows = await self.connector.execute_query_all_async(
                query=_NEXT, worker_id=worker_id, slots=self._slots, count=count
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


# The connections of the job queue: a pool for its queries, and one connection that listens for notifications.
#
# The second is always to PostgreSQL itself: a pooler in transaction mode does not deliver notifications.


async def check_queue(database: DatabaseSettings) -> None:
    """Raises an error if the database cannot be reached. Procrastinate would try to open its pool for half a minute,
    with growing pauses."""
    assert database.url is not None, "the caller sets the database URL"
    await (await AsyncConnection.connect(database.url, **_kwargs(database))).close()


def make_connector(database: DatabaseSettings, connections: int) -> PsycopgConnector:
    assert database.url is not None, "the caller sets the database URL"
    arguments: dict[str, Any] = {
        "conninfo": database.url,
        "min_size": connections,
        "max_size": connections,
        # All connect at once: a host that is away takes seconds each time.
        "num_workers": connections,
        # By default the pool waits for half a minute before it reports that the database is unreachable.
        "timeout": database.pool_wait_seconds,
        "reconnect_timeout": RECONNECT_SECONDS,
    }
    if not database.has_pooler:
        return PsycopgConnector(kwargs=_kwargs(database), pool_factory=_queue_pool, **arguments)
    return _PoolerConnector(database, kwargs={"autocommit": True, **_kwargs(database)}, **arguments)


def _queue_pool(**options: Any) -> LivingPool[Connection]:
    """As the library makes it, but a query takes one round trip instead of four: each is a single statement, and the
    check of a connection needs none."""

    async def configure(connection: Connection) -> None:
        await connection.set_autocommit(True)

    return LivingPool(**options | {"check": None, "configure": configure})


def queue_settings(database: DatabaseSettings) -> dict[str, str]:
    return role_settings(database.role, f"{JOBS_SCHEMA},{SCHEMA}")


def _kwargs(database: DatabaseSettings) -> dict[str, Any]:
    return connection_kwargs(queue_settings(database), has_pooler=database.has_pooler)


class _PoolerConnector(PsycopgConnector):
    def __init__(self, database: DatabaseSettings, **arguments: Any) -> None:
        begin = as_begin(queue_settings(database))
        super().__init__(pool_factory=partial(_TransactionPool, begin=begin), **arguments)
        # It opens a connection of its own to listen. Its pool stays empty.
        self._listener = PsycopgConnector(
            conninfo=database.direct_url,
            kwargs=connection_kwargs(queue_settings(database), has_pooler=False),
            min_size=0,
            max_size=1,
        )

    async def open_async(self, pool: AsyncConnectionPool[Any] | None = None) -> None:
        await super().open_async(pool)
        await self._listener.open_async()

    async def close_async(self) -> None:
        await self._listener.close_async()
        await super().close_async()

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        await self._listener.listen_notify(on_notification, channels)


class _TransactionPool(LivingPool[Connection]):
    """Each use of a connection is a transaction with the settings of `begin`."""

    def __init__(self, *, begin: str, **arguments: Any) -> None:
        super().__init__(**arguments | {"check": None})
        self._begin = begin

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[Connection]:  # noqa: ASYNC109 - of psycopg_pool
        async with super().connection(timeout) as connection, transaction_with_settings(connection, self._begin):
            yield connection
