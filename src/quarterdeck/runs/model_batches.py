"""Runs that ask their model by batches, and the batches: collected, sent, looked after until they have ended.

No transaction is open while a provider is asked. A batch belongs to one worker for a while (`look_at`), and all it does
can be done again by another one, except for creating the batch at the provider: see docs/decisions/0111.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import ModelSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.model import (
    BatchAnswer,
    Batches,
    BatchHandle,
    EncodedRequest,
    ModelFailure,
    Step,
    StepRequest,
    TransientFailure,
)
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.runs import batch_store as store
from quarterdeck.runs import lifecycle_store
from quarterdeck.runs.batch_store import OpenRequest, StoredAnswer, TakenBatch, custom_id
from quarterdeck.runs.lifecycle import Lease

# Of one batch. Providers take more, but its text is in the memory of a worker, and its JSON occupies the event loop.
_MAX_REQUESTS = 1000
_MAX_BYTES = 8 * 1024 * 1024
_AT_ONCE = 8
_LOOK_SECONDS = 120.0
# Longer than a look takes: a batch that is being created is not created by another worker, too.
_LEASE_SECONDS = 2 * _LOOK_SECONDS
_STOP_SECONDS = 10.0
_STORE_PAUSE_SECONDS = 1.0


class BatchAsked(Exception):
    """The run has to wait for the answer to this request."""

    def __init__(self, model: str, step: int, request: EncodedRequest) -> None:
        super().__init__(f"Waiting for a batch of {model}.")
        self.model = model
        self.step = step
        self.request = request


async def encode(batches: Batches, lease: Lease, step: int, request: StepRequest) -> EncodedRequest:
    return await batches.encode(custom_id(lease.run_id, step), request)


async def ask(database: Database, lease: Lease, asked: BatchAsked) -> None:
    """Ends the attempt: the run waits for the answer, without a job and without a slot."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await lifecycle_store.wait_for_batch(connection, lease)
        await store.ask(connection, lease.run_id, asked.step, asked.model, asked.request)
        requeued = NewEvent(EventType.RUN_REQUEUED, {"reason": str(asked)})
        await events.append(connection, lease.session_id, lease.run_id, requeued)
        await lifecycle_store.unpark_next(connection, lease.workspace_id)

    await database.transaction(work, repeatable=True)


async def answer(database: Database, lease: Lease, step: int) -> StoredAnswer | None:
    """What a batch made of the request for this step. None: it was not asked by a batch."""
    return await database.read(store.answer, lease.run_id, step)


class BatchSender:
    """The part of one worker."""

    def __init__(self, database: Database, models: ModelRegistry, settings: ModelSettings) -> None:
        self._database = database
        self._models = models
        self._settings = settings

    async def refresh(self) -> None:
        """To be called again and again."""
        limits = (self._settings.batch_collect_seconds, _MAX_REQUESTS, _MAX_BYTES, _LEASE_SECONDS, _AT_ONCE)
        taken = await self._database.transaction(store.take, *limits, repeatable=False)
        await asyncio.gather(*map(self._look, taken))

    async def _look(self, batch: TakenBatch) -> None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._advance(batch)
        except Exception as fault:
            # Until it is given up. The text of a failure is fit for the log, the traceback need not be.
            is_known = isinstance(fault, ModelFailure | TransientFailure)
            extra = fields(batch_id=batch.id, model=batch.model, reason=str(fault) or type(fault).__name__)
            log.warning("a batch failed; trying again", exc_info=None if is_known else fault, extra=extra)
            with suppress(ServiceError):
                await self._look_again(batch)

    async def _advance(self, batch: TakenBatch) -> None:
        requests = await self._database.read(store.open_requests, batch.id)
        is_overdue = batch.age_seconds > self._settings.batch_max_seconds
        try:
            batches = await self._batches(batch.model)
            if is_overdue:
                await self._give_up(batch, batches, requests)
            elif batch.handle is None:
                await self._create(batch, batches, requests)
            else:
                await self._poll(batch, batches, batch.handle, requests)
        except ModelFailure as fault:
            # What the provider has taken is waited for: an operator may mend a key.
            if batch.handle is not None and not is_overdue:
                raise
            await self._finish(batch, None, requests, [], str(fault))

    async def _poll(
        self, batch: TakenBatch, batches: Batches, handle: BatchHandle, requests: Sequence[OpenRequest]
    ) -> None:
        handle, has_ended = await batches.look(handle)
        if has_ended:
            await self._finish(batch, batches, requests, await batches.answers(handle), "It was not answered.")
            return
        is_left = not batch.cancelled and not any(request.is_waiting for request in requests)
        if is_left:
            await batches.cancel(handle)
        await self._look_again(batch, cancelled=is_left)

    async def _batches(self, model: str) -> Batches:
        batches = self._models.batches(await self._models.resolve(model))
        if batches is None:
            raise ModelFailure(f"{model} cannot be asked by batches.")
        return batches

    async def _create(self, batch: TakenBatch, batches: Batches, requests: Sequence[OpenRequest]) -> None:
        sent = [request.encoded for request in requests if request.is_waiting]
        if not sent:
            await self._finish(batch, batches, requests, [], "")
            return
        creating = asyncio.create_task(self._create_and_store(batch, batches, sent))
        try:
            await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The worker stops. What the provider has created without our knowledge would be paid and never read.
            await asyncio.wait({creating}, timeout=_STOP_SECONDS)
            raise

    async def _create_and_store(self, batch: TakenBatch, batches: Batches, sent: Sequence[EncodedRequest]) -> None:
        handle = await batches.create(sent)
        while True:
            try:
                is_stored = await self._database.transaction(
                    store.created, batch, handle, self._settings.batch_poll_seconds, repeatable=True
                )
                break
            except ServiceError:
                await asyncio.sleep(_STORE_PAUSE_SECONDS)
        if not is_stored:
            # This worker was stopped for so long that another one has created the batch again.
            await batches.cancel(handle)

    async def _give_up(self, batch: TakenBatch, batches: Batches, requests: Sequence[OpenRequest]) -> None:
        if batch.handle is not None and not batch.cancelled:
            with suppress(ModelFailure, TransientFailure):
                await batches.cancel(batch.handle)
        await self._finish(batch, batches, requests, [], "It took too long.")

    async def _finish(
        self,
        batch: TakenBatch,
        batches: Batches | None,
        requests: Sequence[OpenRequest],
        answers: Sequence[BatchAnswer],
        missing: str,
    ) -> None:
        """`missing`: why there is no answer to the other requests."""
        found = {one.custom_id: one for one in answers}
        for request in requests:
            answered = found.get(request.custom_id, BatchAnswer(request.custom_id, None, missing))
            used = None
            while not await self._deliver(batch, request, answered, used):
                # The run has ended. What its answer cost is counted all the same.
                assert batches is not None, "there is an answer"
                assert answered.body is not None
                used = await batches.decode(answered.body, StepRequest("", []))
        await self._database.statement(store.end, batch, repeatable=True)

    async def _deliver(self, batch: TakenBatch, request: OpenRequest, answered: BatchAnswer, used: Step | None) -> bool:
        """False: nothing was written, because it must be known what the answer has `used`."""
        run_id = request.run_id

        async def work(connection: Connection) -> bool:
            await events.lock_session(connection, request.session_id)
            if await store.release(connection, batch, run_id):
                await store.set_answer(connection, batch.id, run_id, StoredAnswer(answered.body, answered.failure))
                await lifecycle_store.enqueue(connection, request.session_id, run_id)
                if answered.failure is not None:
                    reason = f"The batch gave no answer: {answered.failure} The model is asked in the ordinary way."
                    requeued = NewEvent(EventType.RUN_REQUEUED, {"reason": reason})
                    await events.append(connection, request.session_id, run_id, requeued)
                return True
            if answered.body is not None and used is None:
                return False
            if await store.forget(connection, batch.id, run_id) and used is not None:
                await store.add_usage(connection, run_id, batch.model, used)
            return True

        return await self._database.transaction(work, repeatable=True)

    async def _look_again(self, batch: TakenBatch, *, cancelled: bool = False) -> None:
        pause_seconds = self._settings.batch_poll_seconds
        await self._database.statement(store.look_again, batch, pause_seconds, cancelled, repeatable=True)
