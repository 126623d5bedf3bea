"""Batches inputs: those that arrive during a database call are sent together in the next one.

No input waits for a batch to fill. Batches do not wait for locks: an input whose session is locked by others leaves its
batch and is sent again in calls that wait, each only for a short time. So a session that is stuck delays only its own
inputs. Workspaces take turns in the queue and in waiting for locks, and each has a limit of waiting text.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from uuid import UUID

import psycopg

from quarterdeck.core import errors, metrics
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import DatabaseSettings, SubmitSettings
from quarterdeck.core.slots import Slots
from quarterdeck.db import driver_errors
from quarterdeck.db.database import lock_pause_seconds, make_pool
from quarterdeck.db.pool import Pool
from quarterdeck.runs import store
from quarterdeck.runs.model import Submission, Submitted, Verdict

# One database call for a batch of inputs, and what each caller is told when the call fails.


class PendingInput:
    """An input whose caller waits for `result`. The result is done early if the caller gives up."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.result: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self.began = time.monotonic()
        # While a call is under way, only the database knows whether the input is stored.
        self.is_sent = False

    @property
    def has_key(self) -> bool:
        return self.submission.idempotency_key is not None

    def succeed(self, submitted: Submitted) -> None:
        if not self.result.done():
            self.result.set_result(submitted)

    def fail(self, error: ServiceError, cause: Exception | None = None) -> None:
        if not self.result.done():
            error.__cause__ = cause
            self.result.set_exception(error)


class InputSender:
    def __init__(self, pool: Pool, settings: SubmitSettings, tell_readers: Callable[[Iterable[UUID]], None]) -> None:
        self._pool = pool
        self._settings = settings
        self._tell_readers = tell_readers

    async def send(self, batch: Sequence[PendingInput], *, wait_for_locks: bool) -> list[PendingInput]:
        """Sends the inputs in one call and answers their callers. Returns the inputs whose session is locked by
        others. Raises psycopg.Error if PostgreSQL rolled the call back: nothing is stored and no caller is answered."""
        try:
            return await self._call(batch, wait_for_locks=wait_for_locks)
        except driver_errors.NO_CONNECTION as fault:
            for pending in batch:
                pending.fail(driver_errors.translate(fault), fault)
        except psycopg.Error as fault:
            if driver_errors.connection_lost(fault):
                return await self._repeat_after_loss(batch, fault, wait_for_locks=wait_for_locks)
            for pending in batch:
                pending.is_sent = False
            raise
        except Exception as fault:
            for pending in batch:
                pending.fail(errors.internal(), fault)
        return []

    async def send_one_by_one(self, batch: Sequence[PendingInput], *, wait_for_locks: bool) -> list[PendingInput]:
        """For a batch that PostgreSQL refused: the input that caused it fails, the others do not. Returns the inputs
        that need a lock which others hold."""
        locked: list[PendingInput] = []
        for pending in batch:
            try:
                locked += await self.send([pending], wait_for_locks=wait_for_locks)
            except driver_errors.LOCKED:
                locked.append(pending)
            except driver_errors.CONTENTION as fault:
                pending.fail(errors.contended(), fault)
            except psycopg.Error as fault:
                pending.fail(driver_errors.translate(fault), fault)
        return locked

    async def _repeat_after_loss(
        self, batch: Sequence[PendingInput], loss: psycopg.Error, *, wait_for_locks: bool
    ) -> list[PendingInput]:
        """The connection broke, and the call may have been committed. Inputs with an Idempotency-Key can be sent again:
        their receipts tell. For the others the outcome stays unknown."""
        for pending in batch:
            if not pending.has_key:
                pending.fail(errors.outcome_unknown(), loss)
        with_key = [pending for pending in batch if pending.has_key]
        try:
            return await self._call(with_key, wait_for_locks=wait_for_locks) if with_key else []
        except Exception as fault:
            for pending in with_key:
                pending.fail(errors.unavailable(), fault)
            return []

    async def _call(self, batch: Sequence[PendingInput], *, wait_for_locks: bool) -> list[PendingInput]:
        async with self._pool.lease() as connection:
            # Callers that gave up before their input was sent were told that nothing happened.
            sent = [pending for pending in batch if not pending.result.done()]
            if not sent:
                return []
            for pending in sent:
                pending.is_sent = True
            metrics.batch_sent(len(sent))
            submissions = [pending.submission for pending in sent]
            results = await store.submit(
                connection, submissions, settings=self._settings, wait_for_locks=wait_for_locks
            )
        locked, accepted = [], set()
        for pending, submitted in zip(sent, results, strict=True):
            if submitted.verdict is Verdict.LOCKED:
                pending.is_sent = False
                locked.append(pending)
                continue
            pending.succeed(submitted)
            if submitted.verdict is Verdict.ACCEPTED:
                accepted.add(pending.submission.session_id)
        # After the commit. A NOTIFY inside the statement would halve its throughput.
        self._tell_readers(accepted)
        return locked


# One call at a time makes the largest batches. After so many seconds (ten times what a call takes) the next call
# starts beside the one that is slow.
_SLOW_CALL_SECONDS = 0.02


class InputBatcher:
    def __init__(
        self,
        url: str,
        database: DatabaseSettings,
        submit: SubmitSettings,
        tell_readers: Callable[[Iterable[UUID]], None],
    ) -> None:
        """`tell_readers` is called with the sessions whose logs grew. It must return at once."""
        self._pool = make_pool(url, database, database.submit_connections, name="submit")
        self._sender = InputSender(self._pool, submit, tell_readers)
        self._settings = submit
        self._database = database
        self._timeout_seconds = database.statement_seconds + 0.5
        self._pending_bytes = 0
        self._pending_bytes_of: Counter[Hashable] = Counter()
        # By owner. The owners are in the order of their turns.
        self._queues: dict[Hashable, deque[PendingInput]] = {}
        # Inputs that wait for the lock of their session.
        self._locked: dict[UUID, list[PendingInput]] = {}
        # Calls that wait for locks never take the last connection, and those of one owner only a share of the others.
        lock_waits = max(1, database.submit_connections - 1)
        self._lock_waits = Slots(lock_waits, max(1, int(lock_waits * database.workspace_share)))
        self._queue_task: asyncio.Task[None] | None = None
        # asyncio keeps no reference to running tasks.
        self._calls: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._timeout_seconds)

    async def submit(self, submission: Submission) -> Submitted:
        size, owner = submission.text_bytes, submission.owner
        if (
            self._pending_bytes + size > self._settings.waiting_bytes
            or self._pending_bytes_of[owner] + size > self._settings.workspace_waiting_bytes
        ):
            raise errors.unavailable("Too many inputs are waiting. Try again shortly.")
        pending = PendingInput(submission)
        self._queues.setdefault(owner, deque()).append(pending)
        self._pending_bytes += size
        self._pending_bytes_of[owner] += size
        if self._queue_task is None:
            self._queue_task = asyncio.create_task(self._send_queue())
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await pending.result
        except TimeoutError:
            if pending.is_sent and not pending.has_key:
                raise errors.outcome_unknown() from None
            # An input that was not sent yet never will be.
            raise errors.unavailable() from None
        finally:
            self._pending_bytes -= size
            self._pending_bytes_of[owner] -= size
            if not self._pending_bytes_of[owner]:
                del self._pending_bytes_of[owner]

    async def _send_queue(self) -> None:
        while self._queues:
            call = self._start(self._send_batch(self._next_batch()))
            await asyncio.wait({call}, timeout=_SLOW_CALL_SECONDS)
        self._queue_task = None

    def _next_batch(self) -> list[PendingInput]:
        batch: list[PendingInput] = []
        batch_bytes = 0
        while self._queues and len(batch) < self._settings.batch_inputs and batch_bytes < self._settings.batch_bytes:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            batch.append(queue.popleft())
            batch_bytes += batch[-1].submission.text_bytes
            if queue:
                # Behind the other owners.
                self._queues[owner] = queue
        return batch

    async def _send_batch(self, batch: list[PendingInput]) -> None:
        try:
            locked = await self._sender.send(batch, wait_for_locks=False)
        except driver_errors.LOCKED:
            # Not the lock of a session: a row or a table.
            locked = batch
        except psycopg.Error:
            locked = await self._sender.send_one_by_one(batch, wait_for_locks=False)
        for pending in locked:
            session_id = pending.submission.session_id
            if session_id not in self._locked:
                self._locked[session_id] = []
                self._start(self._send_locked(session_id))
            self._locked[session_id].append(pending)

    async def _send_locked(self, session_id: UUID) -> None:
        """Sends the inputs of one session, in one call at a time, and waits for the session's lock: a short time in the
        call, then without a connection."""
        while self._locked[session_id]:
            owner = self._locked[session_id][0].submission.owner
            try:
                async with self._lock_waits.hold(owner, self._database.lock_wait_seconds):
                    batch, self._locked[session_id] = self._locked[session_id], []
                    locked = await self._send_waiting(batch)
            except TimeoutError:
                locked, self._locked[session_id] = self._locked[session_id], []
            if locked:
                self._locked[session_id] = self._without_overdue(locked) + self._locked[session_id]
                await asyncio.sleep(lock_pause_seconds(self._database))
        del self._locked[session_id]

    async def _send_waiting(self, batch: list[PendingInput]) -> list[PendingInput]:
        """Returns the inputs whose lock was not released."""
        try:
            return await self._sender.send(batch, wait_for_locks=True)
        except driver_errors.LOCKED:
            return batch
        except driver_errors.CONTENTION as fault:
            for pending in batch:
                pending.fail(errors.contended(), fault)
            return []
        except psycopg.Error:
            return await self._sender.send_one_by_one(batch, wait_for_locks=True)

    def _without_overdue(self, locked: list[PendingInput]) -> list[PendingInput]:
        """Answers the callers that have waited for a lock for too long."""
        oldest = time.monotonic() - self._database.lock_wait_seconds
        for pending in locked:
            if pending.began <= oldest:
                pending.fail(errors.contended())
        return [pending for pending in locked if not pending.result.done()]

    def _start(self, call: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task
