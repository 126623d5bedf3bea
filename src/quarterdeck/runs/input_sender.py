"""One database call for a batch of inputs, and what each caller is told when the call fails."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import psycopg

from quarterdeck.core import errors, metrics
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db import driver_errors
from quarterdeck.db.pool import Pool
from quarterdeck.runs import store
from quarterdeck.runs.model import Submission, Submitted, Verdict


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
