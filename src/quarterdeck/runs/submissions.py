"""Coalescing of inputs: what arrives while a call is under way goes out together in the next one.

Nobody waits for a batch to fill: a free connection takes what is there. A fault of one submission is made its own
by repeating the batch one by one.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from uuid import UUID

import psycopg
from msgspec import Struct

from quarterdeck import errors
from quarterdeck.db import faults
from quarterdeck.db.database import lease, make_pool
from quarterdeck.errors import Kind, ServiceError
from quarterdeck.runs import store
from quarterdeck.runs.model import Submission, Submitted
from quarterdeck.settings import DatabaseSettings, SubmitSettings

Result = Submitted | ServiceError


class _Waiting(Struct, frozen=True):
    submission: Submission
    result: "asyncio.Future[Result]"


class Submissions:
    def __init__(self, url: str, database: DatabaseSettings, submit: SubmitSettings) -> None:
        self._pool = make_pool(url, database, database.submit_connections)
        self._free = database.submit_connections
        self._batch_inputs = submit.batch_inputs
        self._patience_seconds = database.statement_seconds + 0.5
        self._waiting: deque[_Waiting] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    async def submit(self, submission: Submission) -> Submitted:
        waiting = _Waiting(submission, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._free > 0:
            self._free -= 1
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        done, _ = await asyncio.wait({waiting.result}, timeout=self._patience_seconds)
        if not done:
            raise errors.outcome_unknown() if submission.idempotency_key is None else errors.unavailable()
        result = waiting.result.result()
        if isinstance(result, ServiceError):
            raise result
        return result

    async def _send(self) -> None:
        """Holds one of the places until nothing waits."""
        try:
            while self._waiting:
                count = min(len(self._waiting), self._batch_inputs)
                batch = [self._waiting.popleft() for _ in range(count)]
                results = await self._settle([waiting.submission for waiting in batch])
                for waiting, result in zip(batch, results, strict=True):
                    if not waiting.result.done():
                        waiting.result.set_result(result)
        finally:
            self._free += 1

    async def _settle(self, batch: Sequence[Submission]) -> Sequence[Result]:
        """A result for each. Never raises: a sender that died would take its place with it."""
        try:
            return await self._call(batch)
        except psycopg.Error as fault:
            if faults.connection_lost(fault):
                return await self._after_loss(batch, fault)
            if fault.sqlstate is None:
                # No connection was to be had; nothing was sent.
                return [_caused(faults.translate(fault), fault) for _ in batch]
        except Exception as fault:
            return [_caused(errors.internal(), fault) for _ in batch]
        return await self._one_by_one(batch)

    async def _one_by_one(self, batch: Sequence[Submission]) -> Sequence[Result]:
        """PostgreSQL refused the batch: the fault of one must not be the fault of all. Sessions go side by side,
        since one that is stuck takes its time; the inputs of one session keep their order."""
        results: dict[UUID, Result] = {}

        async def repeat(items: Sequence[Submission]) -> None:
            for item in items:
                results[item.input_id] = await self._alone(item)
                if _is_contended(results[item.input_id]):
                    # What holds this session holds the rest of its inputs too.
                    results.update(
                        {rest.input_id: errors.contended() for rest in items if rest.input_id not in results}
                    )
                    return

        sessions: dict[UUID, list[Submission]] = {}
        for item in batch:
            sessions.setdefault(item.session_id, []).append(item)
        await asyncio.gather(*map(repeat, sessions.values()))
        return [results[item.input_id] for item in batch]

    async def _alone(self, item: Submission) -> Result:
        try:
            return (await self._call([item]))[0]
        except faults.CONTENTION as fault:
            return _caused(errors.contended(), fault)
        except psycopg.Error as fault:
            if faults.connection_lost(fault):
                return (await self._after_loss([item], fault))[0]
            return _caused(faults.translate(fault), fault)
        except Exception as fault:
            return _caused(errors.internal(), fault)

    async def _after_loss(self, batch: Sequence[Submission], loss: psycopg.Error) -> Sequence[Result]:
        """The call may have been committed. A receipt tells; without one nobody can."""
        keyed = [item for item in batch if item.idempotency_key is not None]
        found: dict[UUID, Result] = {}
        if keyed:
            try:
                again: Sequence[Result] = await self._call(keyed)
            except Exception as fault:
                again = [_caused(errors.unavailable(), fault) for _ in keyed]
            found = {item.input_id: result for item, result in zip(keyed, again, strict=True)}
        return [found.get(item.input_id) or _caused(errors.outcome_unknown(), loss) for item in batch]

    async def _call(self, batch: Sequence[Submission]) -> list[Submitted]:
        async with lease(self._pool) as connection:
            return await store.submit(connection, batch)


def _is_contended(result: Result) -> bool:
    return isinstance(result, ServiceError) and result.kind is Kind.CONTENDED


def _caused(error: ServiceError, cause: Exception) -> ServiceError:
    error.__cause__ = cause
    return error
