"""Runs that are not started by the batcher: inputs that are queued or interrupt the active run, and retries.

All are part of the caller's transaction, which holds the session's lock.
"""

from typing import Any
from uuid import UUID

from quarterdeck.auth.service import caller_of
from quarterdeck.core import errors, tracing
from quarterdeck.core.actors import Principal
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.events.notifications import announce_events
from quarterdeck.runs import creation_store as store
from quarterdeck.runs import lifecycle, lifecycle_store
from quarterdeck.runs.attachments import refused
from quarterdeck.runs.creation_store import NewRun
from quarterdeck.runs.model import AttachmentRequest, Delivery, RunState, Verdict


async def find_attachments(
    connection: Connection, principal: Principal, session_id: UUID, request: AttachmentRequest
) -> list[dict[str, Any]]:
    """As the event shows them. Raises if the input must be refused."""
    # A session token sees no files.
    files_of = principal.workspace_id if principal.session_id is None else None
    refusal, detail, attached = await store.find_attachments(connection, session_id, files_of, request)
    if refusal is not None:
        raise refused(Verdict(refusal), detail)
    return attached


async def queue_input(
    connection: Connection,
    principal: Principal,
    session_id: UUID,
    text: str,
    attached: list[dict[str, Any]] | None,
    settings: SubmitSettings,
) -> UUID:
    """Adds a run that starts when the runs before it have ended: at once if there are none."""
    if await store.pending(connection, session_id) >= settings.session_pending_runs:
        raise errors.too_many_pending()
    run = _new_run(principal, session_id, RunState.PENDING)
    await store.add(connection, run, new_id(), text, Delivery.QUEUE, await caller_of(connection, principal), attached)
    await lifecycle_store.start_pending(connection, session_id)
    await announce_events(connection, [session_id])
    return run.id


async def interrupt_with_input(
    connection: Connection, principal: Principal, session_id: UUID, text: str, attached: list[dict[str, Any]] | None
) -> tuple[UUID, UUID | None]:
    """Cancels the active run and starts one with this input, before pending runs. Returns the id of the new run and of
    the cancelled one."""
    cancelled_run_id = await lifecycle.interrupt(connection, session_id, principal.workspace_id)
    run = _new_run(principal, session_id, RunState.QUEUED)
    actor = await caller_of(connection, principal)
    await store.add(connection, run, new_id(), text, Delivery.INTERRUPT, actor, attached)
    await lifecycle_store.enqueue(connection, session_id, run.id)
    await announce_events(connection, [session_id])
    return run.id, cancelled_run_id


async def retry(
    connection: Connection, principal: Principal, run_id: UUID, session_id: UUID, settings: SubmitSettings
) -> UUID:
    """Starts a run with copies of the inputs of an ended run."""
    if await lifecycle_store.unfinished_of(connection, session_id):
        raise errors.another_run_active()
    await store.show_retried(connection, session_id, run_id)
    new_run_id = new_id()
    new_input_ids = [new_id() for _ in range(settings.run_waiting_inputs)]
    actor = await caller_of(connection, principal)
    match await store.repeat_inputs(
        connection,
        run_id,
        new_run_id,
        new_input_ids,
        settings.run_waiting_bytes,
        actor,
        principal.api_key_id,
        tracing.traceparent(),
    ):
        case "empty":
            raise errors.nothing_to_retry()
        case "too_many":
            raise errors.too_much_to_retry()
    await lifecycle_store.enqueue(connection, session_id, new_run_id)
    await announce_events(connection, [session_id])
    return new_run_id


def _new_run(principal: Principal, session_id: UUID, state: RunState) -> NewRun:
    return NewRun(new_id(), session_id, principal.workspace_id, state, principal.api_key_id, tracing.traceparent())
