"""Batches inputs: those that arrive during a database call are sent together in the next one.

No input waits for a batch to fill. Batches do not wait for locks: an input whose session is locked by others leaves its
batch and is sent again in a call that waits. So a session that is stuck delays only its own inputs.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from uuid import UUID

import psycopg

from quarterdeck.conversations.runs.input_sender import InputSender, PendingInput
from quarterdeck.conversations.runs.model import Submission, Submitted
from quarterdeck.core import errors
from quarterdeck.core.settings import DatabaseSettings, SubmitSettings
from quarterdeck.db import driver_errors
from quarterdeck.db.database import make_pool

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
        self._pool = make_pool(url, database, database.submit_connections)
        self._sender = InputSender(self._pool, submit, tell_readers)
        self._settings = submit
        self._timeout_seconds = database.statement_seconds + 0.5
        self._pending_bytes = 0
        self._queue: deque[PendingInput] = deque()
        # Inputs that wait for the lock of their session.
        self._locked: dict[UUID, list[PendingInput]] = {}
        # Calls that wait for locks never take the last connection.
        self._lock_waits = asyncio.Semaphore(max(1, database.submit_connections - 1))
        self._queue_task: asyncio.Task[None] | None = None
        # asyncio keeps no reference to running tasks.
        self._calls: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._timeout_seconds)

    async def submit(self, submission: Submission) -> Submitted:
        size = len(submission.text)
        if self._pending_bytes + size > self._settings.waiting_bytes:
            raise errors.unavailable("Too many inputs are waiting. Try again shortly.")
        pending = PendingInput(submission)
        self._queue.append(pending)
        self._pending_bytes += size
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

    async def _send_queue(self) -> None:
        while self._queue:
            call = self._start(self._send_batch(self._next_batch()))
            await asyncio.wait({call}, timeout=_SLOW_CALL_SECONDS)
        self._queue_task = None

    def _next_batch(self) -> list[PendingInput]:
        batch: list[PendingInput] = []
        batch_bytes = 0
        while self._queue and len(batch) < self._settings.batch_inputs and batch_bytes < self._settings.batch_bytes:
            batch.append(self._queue.popleft())
            batch_bytes += len(batch[-1].submission.text)
        return batch

    async def _send_batch(self, batch: list[PendingInput]) -> None:
        try:
            locked = await self._sender.send(batch, wait_for_locks=False)
        except psycopg.Error:
            locked = await self._sender.send_one_by_one(batch, wait_for_locks=False)
        for pending in locked:
            session_id = pending.submission.session_id
            if session_id not in self._locked:
                self._locked[session_id] = []
                self._start(self._send_locked(session_id))
            self._locked[session_id].append(pending)

    async def _send_locked(self, session_id: UUID) -> None:
        """Sends the inputs of one session, in one call at a time, and waits for the session's lock."""
        while self._locked[session_id]:
            async with self._lock_waits:
                batch, self._locked[session_id] = self._locked[session_id], []
                try:
                    await self._sender.send(batch, wait_for_locks=True)
                except driver_errors.CONTENTION as fault:
                    for pending in batch:
                        pending.fail(errors.contended(), fault)
                except psycopg.Error:
                    await self._sender.send_one_by_one(batch, wait_for_locks=True)
        del self._locked[session_id]

    def _start(self, call: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task
