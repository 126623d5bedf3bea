"""Takes jobs from the queue and drives their runs, as many at a time as the worker has slots.

Every second, and sooner after a notification or the end of a run, it compares its tasks with its jobs in the database.
So a lost notification or answer has no lasting effect, and an error of the database stops no run.
"""

import asyncio
from contextlib import suppress

from quarterdeck.core import metrics
from quarterdeck.core.ids import new_id
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import DatabaseSettings, WorkerSettings
from quarterdeck.db.database import Connection, Database, connect
from quarterdeck.events.log import ask_who_reads
from quarterdeck.worker import queue_store as store
from quarterdeck.worker.queue_store import Job
from quarterdeck.worker.run_driver import RunDriver

_CHECK_SECONDS = 1.0
# Taken by one statement. Few, since other workers may be idle.
_TAKEN_AT_ONCE = 8
# After an error of the database. Runs must resume within five seconds after it is back.
_PAUSE_SECONDS = 0.5


class Queue:
    def __init__(
        self, driver: RunDriver, database: Database, database_settings: DatabaseSettings, worker: WorkerSettings
    ) -> None:
        self._driver = driver
        self._database = database
        self._database_settings = database_settings
        self._worker = worker
        # A heartbeat is due four times in the time of a lease.
        self._check_seconds = min(_CHECK_SECONDS, worker.lease_seconds / 4)
        self._id = new_id()
        self._is_stopping = False
        # The database may have changed, or a slot is free.
        self._changed = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # Jobs without a task that are not deleted yet.
        self._done: set[int] = set()

    async def work(self) -> None:
        """Until `stop` is called; then hands the runs back."""
        listening = asyncio.create_task(self._listen())
        try:
            while not self._is_stopping:
                self._changed.clear()
                if not await self._synchronize():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), self._check_seconds)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await self._leave()

    def stop(self) -> None:
        self._is_stopping = True
        self._changed.set()

    async def _synchronize(self) -> bool:
        """Whether there may be more to take at once."""
        # Jobs that are not among these, neither before nor after the call, have just been taken.
        known, done = set(self._tasks) | self._done, set(self._done)
        count = min(self._worker.concurrency - len(self._tasks), _TAKEN_AT_ONCE)
        lease_seconds, slots = self._worker.lease_seconds, self._worker.concurrency
        try:
            jobs = await self._database.statement(
                store.synchronize, self._id, lease_seconds, slots, count, done, repeatable=True
            )
        except Exception as fault:
            log.warning("the queue is not reachable; trying again", exc_info=fault)
            await asyncio.sleep(_PAUSE_SECONDS)
            return True
        self._done -= done
        taken = [job for job in jobs if job.id not in known | self._done]
        for job in taken:
            metrics.job_taken(job.waited_seconds)
            self._tasks[job.id] = asyncio.create_task(self._drive(job))
        for job in jobs:
            if job.cancelled and job.id in self._tasks:
                self._tasks[job.id].cancel()
        return 0 < count == len(taken)

    async def _drive(self, job: Job) -> None:
        is_deleted = False
        try:
            is_deleted = await self._driver.drive(job.run_id)
        except Exception as fault:
            # Recovery gives the run another job.
            log.error("the run failed unexpectedly", exc_info=fault, extra=fields(run_id=job.run_id))
        finally:
            del self._tasks[job.id]
            if not is_deleted:
                self._done.add(job.id)
            self._changed.set()

    async def _listen(self) -> None:
        url = self._database_settings.session_url
        assert url is not None, "the caller sets the database URL"
        while True:
            try:
                async with await connect(url, self._database_settings) as connection:
                    await store.listen(connection)
                    # Jobs may have been added before, and text been asked for.
                    self._changed.set()
                    self._driver.deltas.send_again()
                    await ask_who_reads(connection)
                    async for notification in connection.notifies():
                        if notification.channel == store.READERS:
                            self._driver.deltas.hear(notification.payload)
                        else:
                            self._changed.set()
            except Exception as fault:
                log.debug("the listening connection was lost; reconnecting", exc_info=fault)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _leave(self) -> None:
        """Cancelled tasks hand their runs back, so that other workers continue with them at once."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        async def work(connection: Connection) -> None:
            await store.synchronize(connection, self._id, self._worker.lease_seconds, 0, 0, self._done)
            await store.unregister(connection, self._id)

        try:
            await self._database.transaction(work, repeatable=True)
        except Exception as fault:
            # Recovery finds the jobs when the heartbeats have stopped.
            log.warning("the worker could not be unregistered", exc_info=fault)
