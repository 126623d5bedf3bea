"""The life of a run: begin, take inputs, record steps, wait, finish, fail, hand back, cancel.

Each function is one transaction: it locks the session, then reads, then writes. No transaction is open while the model
works. Every write carries the number of the attempt, so that a worker whose run was taken over can no longer write.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from quarterdeck.core import metrics, tracing
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import ActionSettings, RunSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log as events
from quarterdeck.events.log import announce_events, announcing
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.model import Step
from quarterdeck.runs import action_records as actions
from quarterdeck.runs import batch_store
from quarterdeck.runs import lifecycle_store as store
from quarterdeck.runs import store as run_store
from quarterdeck.runs.action_model import NewAction
from quarterdeck.runs.lifecycle_store import BeginVerdict, FoundRun, RunKey, StoppingLimit
from quarterdeck.runs.model import ENTRY_BYTES, Entry, Input, Priority, RunEnded, RunSetup, RunState, Superseded
from quarterdeck.webhooks import service as webhooks
from quarterdeck.webhooks.model import WebhookEvent


class LimitReached(Exception):
    """A limit of cost or tokens is reached. Nothing was written."""

    def __init__(self, limit: StoppingLimit) -> None:
        super().__init__(limit.reached)
        self.limit = limit


class Lease(RunKey, frozen=True):
    """The right of one attempt to drive a run. It ends when another attempt begins."""

    steps: int
    tokens: int
    # Age of the run when this attempt began, without the time that it waited.
    seconds: float
    setup: RunSetup
    # The one that the run asked last.
    model: str
    priority: Priority = Priority.NORMAL
    # Bytes of the inputs that the attempt took when it began, as counted by `taken_bytes`.
    input_bytes: int = 0
    # The limit that was reached when the attempt began. Only for runs that had stored no step.
    reached: StoppingLimit | None = None


def taken_bytes(inputs: Sequence[Input]) -> int:
    """What inputs cost of the budget of a step."""
    return sum(one.text_bytes + ENTRY_BYTES for one in inputs)


def overdue(settings: RunSettings) -> str:
    return f"The run took longer than {settings.max_seconds:g} seconds."


async def find(database: Database, run_id: UUID) -> FoundRun | None:
    """What `begin` needs to know of a run. None: there is nothing to do."""
    return await database.read(store.find, run_id)


class SetupChanged(Exception):
    """The session has changed since the run was found, so its setup has to be made again."""


async def begin(
    database: Database, run_id: UUID, found: FoundRun, setup: RunSetup, settings: RunSettings, *, again: bool
) -> Lease | None:
    """Starts an attempt and takes waiting inputs, so that a run that fails at once has consumed some of its inputs and
    does not pass them all on for ever. None: there is nothing to do, or the workspace has too many active runs.
    `setup`: that of the run, or one made after it was found. Raises SetupChanged.
    `again`: the same worker ended the last attempt in good order, so it does not count as a crash."""
    new_setup = setup if found.setup is None else None
    begin_attempt = announcing(store.begin, found.session_id)
    begun = await database.statement(
        begin_attempt, run_id, settings, _started(setup), new_setup, found.revision, not again, repeatable=True
    )
    if begun is None:
        return None
    if begun.verdict is BeginVerdict.CHANGED:
        raise SetupChanged
    run = RunKey(run_id, found.session_id, found.workspace_id, begun.attempt)
    if begun.verdict is BeginVerdict.BEGUN:
        limit = None if begun.reached is None else StoppingLimit(begun.reached, begun.limit_stopped)
        return Lease(
            *run.columns,
            begun.steps,
            begun.tokens,
            begun.seconds,
            setup,
            found.model or setup.model,
            found.priority,
            begun.input_bytes or 0,
            limit,
        )
    reason = f"Its worker ended {begun.barren_attempts} times in a row before a step was stored."
    if begun.verdict is BeginVerdict.OVERDUE:
        # Before inputs are taken: those that wait start the next run.
        reason = overdue(settings)
    with suppress(Superseded):
        await database.transaction(_fail, run, begun.state, reason, False, repeatable=True)
        metrics.run_ended(RunState.FAILED)
    return None


def _started(setup: RunSetup) -> dict[str, Any]:
    used = {"model": setup.model, "settings": setup.settings, "skills": setup.skills, "agent": setup.agent}
    started: dict[str, Any] = msgspec.to_builtins(used)
    trace_id = tracing.trace_id()
    return started if trace_id is None else started | {"trace_id": trace_id}


async def traceparent(database: Database, run_id: UUID) -> str | None:
    """The span of the request that started the run. None: it was not traced."""
    return await database.read(store.traceparent, run_id)


async def entries(database: Database, lease: Lease, budget_bytes: int) -> tuple[list[Entry], int]:
    """The newest part of the conversation, and the number of older turns that were left out."""
    return await database.read(store.conversation, lease.session_id, budget_bytes)


async def take(database: Database, lease: Lease, step: int, budget_bytes: int) -> list[Input]:
    """Takes the oldest inputs that wait, until they use up the budget. They count as consumed. Called before each step:
    raises LimitReached if the step must not begin."""

    async def work(connection: Connection) -> list[Input]:
        await events.lock_session(connection, lease.session_id)
        limit = await store.reached_limit(connection, lease.run_id)
        if limit is not None:
            raise LimitReached(limit)
        if budget_bytes <= 0:
            return []
        return await _take(connection, lease, step, budget_bytes)

    return await database.transaction(work, repeatable=False)


async def record(
    database: Database, lease: Lease, entries: Sequence[NewEvent], model: str, step: Step, *, finish: bool = False
) -> bool:
    """Stores a step: the events of an answer of the model, and what it used. `finish`: ends the run in the same
    transaction. False: the run goes on, because it was not to be ended, or an input was accepted at the last moment, or
    webhooks are to be told (see `finish`)."""
    record_step = announcing(store.record_step, lease.session_id)
    recorded = await database.statement(record_step, lease, model, step, entries, finish, repeatable=False)
    if recorded is None:
        raise Superseded
    is_finished = recorded is store.Recorded.FINISHED
    if is_finished:
        metrics.run_ended(RunState.SUCCEEDED)
    return is_finished


async def wait(database: Database, lease: Lease, new: Sequence[NewAction], settings: ActionSettings) -> None:
    """Ends the attempt: the run waits until these actions have answers. It has no job and leaves its slot."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await store.wait(connection, lease)
        await actions.open_actions(connection, lease.workspace_id, lease.session_id, lease.run_id, new, settings)
        await store.unpark_next(connection, lease.workspace_id)

    await database.transaction(work, repeatable=True)


async def finish(database: Database, lease: Lease) -> bool:
    """Ends the run. False if an input was accepted at the last moment: then the run continues."""

    async def work(connection: Connection) -> bool:
        await events.lock_session(connection, lease.session_id)
        if not await store.finish(connection, lease):
            return False
        await announce_events(connection, [lease.session_id])
        await _notify_webhooks(connection, lease.workspace_id, lease.run_id, WebhookEvent.RUN_SUCCEEDED)
        return True

    is_finished = await database.transaction(work, repeatable=False)
    if is_finished:
        metrics.run_ended(RunState.SUCCEEDED)
    return is_finished


async def fail(database: Database, lease: Lease, reason: str, *, refused: bool = False) -> None:
    """Ends the run with a reason. Inputs that it has not consumed start the next run, in the same transaction.
    `refused`: the provider refused the request, so later runs leave out the turns after the last stored answer."""

    # Not a queued one: the run may have waited and been answered since this attempt ended.
    await database.transaction(_fail, lease, RunState.RUNNING, reason, refused, repeatable=True)
    metrics.run_ended(RunState.FAILED)


async def hand_back(
    database: Database,
    lease: Lease,
    reason: str,
    *,
    pause_seconds: float = 0,
    waits_for_models: list[str] | None = None,
) -> None:
    """Puts a running run back into the queue for any worker, with the steps that it has stored. It is not started
    again before the pause is over, or before one of its models answers again (`model_pauses.py`)."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await store.give_back(connection, lease, waits_for_models)
        if pause_seconds > 0:
            await store.enqueue_after(connection, lease.session_id, lease.run_id, pause_seconds)
        elif waits_for_models is None:
            await store.enqueue(connection, lease.session_id, lease.run_id)
        requeued = NewEvent(EventType.RUN_REQUEUED, {"reason": reason})
        await events.append(connection, lease.session_id, lease.run_id, requeued)
        await store.unpark_next(connection, lease.workspace_id)

    await database.transaction(work, repeatable=True)


async def switch_model(database: Database, lease: Lease, before: str, after: str, reason: str) -> None:
    """Another model answers from here on."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await store.switch_model(connection, lease, after)
        switched = NewEvent(EventType.MODEL_SWITCHED, {"from": before, "to": after, "reason": reason})
        await events.append(connection, lease.session_id, lease.run_id, switched)

    await database.transaction(work, repeatable=False)


async def cancel(connection: Connection, run_id: UUID, session_id: UUID, workspace_id: UUID) -> list[UUID]:
    """Cancels a run and returns the ids of the inputs that it had not consumed. Part of the caller's transaction."""
    await events.lock_session(connection, session_id)
    discarded = await _cancel(connection, run_id, session_id, workspace_id)
    if discarded is None:
        return []
    await _start_others(connection, session_id, workspace_id)
    return discarded


async def interrupt(connection: Connection, session_id: UUID, workspace_id: UUID) -> UUID | None:
    """Cancels the active run, if there is one, and returns its id. The caller holds the session's lock and starts a run
    in the same transaction: pending runs wait for the end of that one."""
    run_id = await store.active_of(connection, session_id)
    if run_id is not None:
        await _cancel(connection, run_id, session_id, workspace_id)
        await store.unpark_next(connection, workspace_id)
    return run_id


async def _cancel(connection: Connection, run_id: UUID, session_id: UUID, workspace_id: UUID) -> list[UUID] | None:
    """None if the run has ended before."""
    ends = await store.cancel(connection, run_id)
    if ends is None:
        return None
    await actions.cancel_actions(connection, run_id, workspace_id)
    discarded = await store.discard_waiting(connection, session_id, run_id, ends, "The run was cancelled.")
    data = {"discarded_input_ids": [str(input_id) for input_id in discarded]}
    await events.append(connection, session_id, run_id, NewEvent(EventType.RUN_CANCELLED, data))
    await _after_cancellation(connection, run_id, workspace_id)
    return discarded


async def cancel_all(connection: Connection, session_id: UUID, workspace_id: UUID) -> None:
    """Cancels the active run and the pending ones. For the deletion of the session, which holds its lock. The log goes
    with the session: runs add nothing to it."""
    for run_id in await store.unfinished_of(connection, session_id):
        await store.cancel(connection, run_id)
        await actions.cancel_actions(connection, run_id, workspace_id)
        await _after_cancellation(connection, run_id, workspace_id)
        await store.unpark_next(connection, workspace_id)


async def _after_cancellation(connection: Connection, run_id: UUID, workspace_id: UUID) -> None:
    """The worker is told by its job. Later writes of it are refused."""
    # Before the commit, which is the caller's: if that fails, the run is counted too often.
    metrics.run_ended(RunState.CANCELLED)
    await store.cancel_jobs(connection, run_id)
    await batch_store.leave(connection, run_id)
    await _notify_webhooks(connection, workspace_id, run_id, WebhookEvent.RUN_CANCELLED)


async def _start_others(connection: Connection, session_id: UUID, workspace_id: UUID) -> None:
    """After the end of a run: its session starts the next pending one, unless a run is active, and a parked run of its
    workspace gets the free slot."""
    await store.start_pending(connection, session_id)
    await store.unpark_next(connection, workspace_id)


async def _take(connection: Connection, lease: Lease, step: int, budget_bytes: int) -> list[Input]:
    inputs = await store.waiting(connection, lease.run_id, budget_bytes)
    more = taken_bytes(inputs) >= budget_bytes
    await store.mark_taken(connection, lease, inputs, more=more)
    if inputs:
        await store.log_consumed(connection, lease.session_id, lease.run_id, step, inputs)
        await announce_events(connection, [lease.session_id])
    return inputs


async def _fail(connection: Connection, run: RunKey, state: str, reason: str, refused: bool) -> None:
    run_id, session_id, workspace_id = run.run_id, run.session_id, run.workspace_id
    await events.lock_session(connection, session_id)
    last_input, consumed_through = await store.fail(connection, run, state, reason)
    await batch_store.leave(connection, run_id)
    if refused:
        await store.leave_out_refused(connection, session_id, run_id)
    next_run_id = new_id() if last_input > consumed_through else None
    data: dict[str, Any] = {"reason": reason} | ({} if next_run_id is None else {"next_run_id": str(next_run_id)})
    data |= {"refused_by_provider": True} if refused else {}
    await events.append(connection, session_id, run_id, NewEvent(EventType.RUN_FAILED, data))
    await _notify_webhooks(connection, workspace_id, run_id, WebhookEvent.RUN_FAILED)
    if next_run_id is not None:
        await store.continue_in(connection, run_id, next_run_id)
        await store.enqueue(connection, session_id, next_run_id)
    await _start_others(connection, session_id, workspace_id)


async def _notify_webhooks(connection: Connection, workspace_id: UUID, run_id: UUID, event: WebhookEvent) -> None:
    wanting = await webhooks.subscribers(connection, workspace_id, event)
    if not wanting:
        return
    run = await run_store.get(connection, workspace_id, run_id)
    assert run is not None
    ended = msgspec.convert(asdict(run) | {"run_id": run.id, "workspace_id": workspace_id}, RunEnded)
    await webhooks.add_deliveries(connection, wanting, event, run_id, ended)


# Repairs the job queue: finds runs without a job, jobs without a worker, and jobs without an active run.
#
# It compares the current state of both tables. So a lost notification or a killed worker has no effect for longer than
# one round.


async def recover(database: Database, lease_seconds: float, active_per_workspace: int | None) -> None:
    """Safe to run in all workers at once: rows that another worker has locked are skipped."""
    await database.transaction(run_store.replace_lost_jobs, lease_seconds, repeatable=True)
    # A transaction of its own: its time grows with the number of queued runs.
    await database.transaction(run_store.compare_jobs, active_per_workspace, repeatable=True)


async def runs_to_leave(database: Database, *, no_slot_free: bool) -> list[UUID]:
    """The runs of all workers that must leave their slots, because other workspaces wait. A worker that has a free slot
    asks nobody to leave: it takes a waiting run itself. Which one, the queue chooses (db/functions/turns.sql)."""
    return await database.transaction(run_store.leaving, no_slot_free, repeatable=True)
