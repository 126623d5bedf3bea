"""Coalescing of inputs: what arrives while a call is under way goes out together in the next one.

Nobody waits for a batch to fill. Calls follow each other while they are quick, since few large ones cost less than many
small ones side by side; behind one that takes its time, because a session in it is stuck or the disk is slow, the next
goes out on another connection. A fault of one submission is made its own by repeating the batch one by one. A session
is in one call at a time: were it stuck, it would hold one connection and not all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import psycopg
from msgspec import Struct

from quarterdeck.conversations.runs import store
from quarterdeck.conversations.runs.model import Lane, Submission, Submitted, Verdict
from quarterdeck.core import errors
from quarterdeck.core.errors import Kind, ServiceError
from quarterdeck.core.settings import DatabaseSettings, SubmitSettings
from quarterdeck.db import driver_errors
from quarterdeck.db.database import make_pool

Result = Submitted | ServiceError

# What comes while a call is under way is left to it for so long. A call takes a millisecond, with 64 inputs five.
_QUICK_SECONDS = 0.005


class _Waiting(Struct, frozen=True, eq=False):
    submission: Submission
    result: "asyncio.Future[Result]"
    # On the event loop's clock.
    deadline: float

    def settle(self, result: Result) -> None:
        # Its caller may have lost patience.
        if not self.result.done():
            self.result.set_result(result)


class InputBatcher:
    def __init__(
        self,
        url: str,
        database: DatabaseSettings,
        submit: SubmitSettings,
        tell_readers: Callable[[Iterable[UUID]], None],
    ) -> None:
        """`tell_readers` is called with the sessions whose logs grew; it must not keep anybody waiting."""
        self._pool = make_pool(url, database, database.submit_connections)
        self._free = database.submit_connections
        self._tell_readers = tell_readers
        self._settings = submit
        self._waiting_bytes = 0
        self._patience_seconds = database.statement_seconds + 0.5
        self._waiting: deque[_Waiting] = deque()
        # Each is one call's; its inputs may have been answered one by one.
        self._under_way: list[Sequence[_Waiting]] = []
        # A session is in one call at a time for each credential: a stuck session holds one connection and not all of
        # them. Other credentials do not wait for it, because they may belong to callers that cannot see the session.
        self._lanes_under_way: set[Lane] = set()
        self._senders: set[asyncio.Task[None]] = set()
        # While it runs, the latest call counts as quick.
        self._quick: asyncio.TimerHandle | None = None
        # Runs while anybody waits, and ends no later than the patience of who has waited longest. One for all: a timer
        # for each costs more than its place in the queue.
        self._patience: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(self._patience_seconds)
        if self._patience is not None:
            self._patience.cancel()

    async def submit(self, submission: Submission) -> Submitted:
        size = len(submission.text)
        if self._waiting_bytes + size > self._settings.waiting_bytes:
            raise errors.unavailable("Too many inputs are waiting. Try again shortly.")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(submission, loop.create_future(), loop.time() + self._patience_seconds)
        self._waiting.append(waiting)
        self._waiting_bytes += size
        if self._patience is None:
            self._patience = loop.call_at(waiting.deadline, self._give_up_overdue)
        self._wake_sender()
        result = await waiting.result
        if isinstance(result, ServiceError):
            raise result
        return result

    def _give_up_overdue(self) -> None:
        """What was not sent yet never will be: its caller is told that nothing happened, and nothing happens."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        # The queue and every call keep the order in which inputs came.
        while self._waiting and self._waiting[0].deadline <= now:
            self._leave_queue(self._waiting.popleft(), errors.unavailable())
        unanswered = [waiting for call in self._under_way for waiting in call if not waiting.result.done()]
        for waiting in unanswered:
            if waiting.deadline <= now:
                keyed = waiting.submission.idempotency_key is not None
                waiting.settle(errors.unavailable() if keyed else errors.outcome_unknown())
        deadlines = [waiting.deadline for waiting in (*unanswered, *self._waiting) if waiting.deadline > now]
        self._patience = loop.call_at(min(deadlines), self._give_up_overdue) if deadlines else None

    def _leave_queue(self, waiting: _Waiting, result: Result) -> None:
        self._waiting_bytes -= len(waiting.submission.text)
        waiting.settle(result)

    def _wake_sender(self) -> None:
        if self._free > 0 and self._waiting and self._quick is None:
            self._free -= 1
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send(self) -> None:
        """Holds one of the places until nothing waits that it could send, or another is quicker."""
        try:
            while self._quick is None and (batch := self._take()):
                quick = self._quick = asyncio.get_running_loop().call_later(_QUICK_SECONDS, self._go_on_beside)
                await self._settle(batch)
                quick.cancel()
                if self._quick is quick:
                    self._quick = None
        finally:
            self._free += 1

    def _go_on_beside(self) -> None:
        self._quick = None
        self._wake_sender()

    def _take(self) -> list[_Waiting]:
        """Those that have waited longest, but for sessions that another call is at."""
        batch: list[_Waiting] = []
        kept: list[_Waiting] = []
        batch_bytes = 0
        while self._waiting and len(batch) < self._settings.batch_inputs and batch_bytes < self._settings.batch_bytes:
            waiting = self._waiting.popleft()
            if waiting.submission.lane in self._lanes_under_way:
                kept.append(waiting)
            else:
                batch.append(waiting)
                batch_bytes += len(waiting.submission.text)
        self._waiting.extendleft(reversed(kept))
        self._waiting_bytes -= batch_bytes
        self._lanes_under_way.update(waiting.submission.lane for waiting in batch)
        return batch

    async def _settle(self, batch: Sequence[_Waiting]) -> None:
        """A result for each. Never raises: a sender that died would take its place with it."""
        self._under_way.append(batch)
        results = await self._results([waiting.submission for waiting in batch])
        if results is None:
            await self._one_by_one(batch)
        else:
            for waiting, result in zip(batch, results, strict=True):
                waiting.settle(result)
            self._lanes_under_way.difference_update(waiting.submission.lane for waiting in batch)
            self._tell_of(batch, results)
        self._under_way.remove(batch)

    def _tell_of(self, batch: Sequence[_Waiting], results: Sequence[Result]) -> None:
        """After the commit and not in the statement, whose throughput a NOTIFY would halve; and after the answers,
        which somebody waits for."""
        accepted = {
            waiting.submission.session_id
            for waiting, result in zip(batch, results, strict=True)
            if isinstance(result, Submitted) and result.verdict is Verdict.ACCEPTED
        }
        self._tell_readers(accepted)

    async def _results(self, batch: Sequence[Submission]) -> Sequence[Result] | None:
        """None: PostgreSQL refused the batch. Nowhere here or below has a frame that catches a fault a name for what it
        makes of it: it would be a circle, by the fault's traceback, that keeps the batch until the garbage collector
        comes by."""
        try:
            return await self._call(batch)
        except psycopg.Error as fault:
            if driver_errors.connection_lost(fault):
                return await self._after_loss(batch, fault)
            if fault.sqlstate is None:
                # No connection was to be had; nothing was sent.
                return [_caused(driver_errors.translate(fault), fault) for _ in batch]
            return None
        except Exception as fault:
            return [_caused(errors.internal(), fault) for _ in batch]

    async def _one_by_one(self, batch: Sequence[_Waiting]) -> None:
        """PostgreSQL refused the batch: the fault of one must not be the fault of all. Sessions go side by side,
        since one that is stuck takes its time; the inputs of one session keep their order."""
        sessions: dict[UUID, list[_Waiting]] = {}
        for waiting in batch:
            sessions.setdefault(waiting.submission.session_id, []).append(waiting)
        await asyncio.gather(*map(self._repeat, sessions.values()))

    async def _repeat(self, of_one_session: Sequence[_Waiting]) -> None:
        contended = False
        for waiting in of_one_session:
            # What holds a session holds the rest of its inputs too.
            result = errors.contended() if contended else await self._alone(waiting.submission)
            contended = _is_contended(result)
            waiting.settle(result)
            self._tell_of([waiting], [result])
        lanes = {waiting.submission.lane for waiting in of_one_session}
        if contended:
            self._refuse_waiting(lanes)
        self._lanes_under_way -= lanes
        # The sender of this batch may be busy with the rest of it for seconds.
        self._wake_sender()

    def _refuse_waiting(self, lanes: set[Lane]) -> None:
        for waiting in [waiting for waiting in self._waiting if waiting.submission.lane in lanes]:
            self._waiting.remove(waiting)
            self._leave_queue(waiting, errors.contended())

    async def _alone(self, item: Submission) -> Result:
        try:
            return (await self._call([item]))[0]
        except driver_errors.CONTENTION as fault:
            return _caused(errors.contended(), fault)
        except psycopg.Error as fault:
            if driver_errors.connection_lost(fault):
                return (await self._after_loss([item], fault))[0]
            return _caused(driver_errors.translate(fault), fault)
        except Exception as fault:
            return _caused(errors.internal(), fault)

    async def _after_loss(self, batch: Sequence[Submission], loss: psycopg.Error) -> Sequence[Result]:
        """The call may have been committed. A receipt tells; without one nobody can."""
        keyed = [item for item in batch if item.idempotency_key is not None]
        again = iter(await self._once_more(keyed) if keyed else ())
        return [
            _caused(errors.outcome_unknown(), loss) if item.idempotency_key is None else next(again) for item in batch
        ]

    async def _once_more(self, keyed: Sequence[Submission]) -> Sequence[Result]:
        try:
            return await self._call(keyed)
        except Exception as fault:
            return [_caused(errors.unavailable(), fault) for _ in keyed]

    async def _call(self, batch: Sequence[Submission]) -> list[Submitted]:
        async with self._pool.lease() as connection:
            return await store.submit(connection, batch)


def _is_contended(result: Result) -> bool:
    return isinstance(result, ServiceError) and result.kind is Kind.CONTENDED


def _caused(error: ServiceError, cause: Exception) -> ServiceError:
    error.__cause__ = cause
    return error
