"""Who may submit inputs, and the runs that are not started by the batcher: inputs that are queued or interrupt the
active run, and retries.

All are part of the caller's transaction, which holds the session's lock.
"""

from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.auth.service import caller_of
from quarterdeck.core import errors, tracing
from quarterdeck.core.actors import Caller, Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import FileSettings, ModelSettings, SandboxSettings, SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.events import log as events
from quarterdeck.events.log import announce_events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.attachments import description_of_taken, taken_by
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs import lifecycle, lifecycle_store, store
from quarterdeck.runs.model import AttachmentRequest, BatchModels, Delivery, InputEvent, Priority, RunState, Verdict
from quarterdeck.runs.store import NewRun, Submitter

# The attachments of an input: what is asked of the database, and what callers are told about refused ones.


class AttachmentRules:
    def __init__(self, files: FileSettings, sandbox: SandboxSettings, models: ModelSettings) -> None:
        self._max_files = files.attachments
        self._sandbox = sandbox
        self._default_model = models.default
        # The patterns of LIKE.
        self._media_types = {
            provider: [pattern.replace("*", "%") for pattern in taken_by(provider)]
            for provider in ModelCatalog(models).providers()
        }

    def request(self, event: InputEvent) -> AttachmentRequest | None:
        """None: the input has no attachments."""
        if not event.attachments:
            return None
        if len(event.attachments) > self._max_files:
            raise errors.invalid(f"An input has at most {self._max_files} attachments.")
        if len(set(event.attachments)) < len(event.attachments):
            raise errors.invalid("attachments names a file twice.")
        return AttachmentRequest(
            file_ids=event.attachments,
            default_model=self._default_model,
            media_types=self._media_types,
            all_files_bytes=self._sandbox.all_files_bytes,
            files=self._sandbox.files,
        )


def refusal(verdict: Verdict, detail: Any = None) -> ServiceError:
    """`detail`: about attachments, or the model without batches."""
    match verdict:
        case Verdict.UNAUTHORIZED:
            return errors.unauthorized()
        case Verdict.NOT_FOUND:
            return errors.not_found("session")
        case Verdict.FORBIDDEN:
            return errors.forbidden(Permission.SESSION_MANAGE)
        case Verdict.CONFLICT:
            return errors.conflict(errors.KEY_REUSED)
        case Verdict.ARCHIVED:
            return errors.conflict(errors.ARCHIVED_SESSION)
        case Verdict.FULL:
            return errors.run_full()
        case Verdict.UNKNOWN_FILE:
            return errors.invalid(f"attachments: no file {detail['file_id']}, or this credential cannot see it.")
        case Verdict.UNSUPPORTED_FILE:
            return errors.invalid(
                f"attachments: {detail['model']} cannot read {detail['name']} ({detail['media_type']}). "
                f"It takes {description_of_taken(detail['model'])}. A session with a sandbox takes every file."
            )
        case Verdict.NO_BATCHES:
            return errors.invalid(f"priority: {detail} cannot be asked by batches.")
    return errors.conflict(errors.SESSION_FILES_FULL)


async def check_submitter(connection: Connection, call: Call[Any], session_id: UUID) -> Submitter:
    """With the session's lock, and by the rules that hold for every input: the session may have been deleted or
    archived while this waited for the lock."""
    found = await store.find_submitter(connection, call.credential, session_id, call.workspace_id)
    if found.refusal is not None:
        raise refusal(found.refusal)
    return found


def check_open(submitter: Submitter) -> None:
    if submitter.is_archived:
        raise refusal(Verdict.ARCHIVED)


def batch_models(event: InputEvent, models: ModelCatalog) -> BatchModels | None:
    if event.priority is Priority.NORMAL:
        return None
    return BatchModels(models.default, models.batch_providers())


async def check_batches(connection: Connection, session_id: UUID, batches: BatchModels | None) -> None:
    """Raises if the input must be refused."""
    if batches is None:
        return
    model = await store.model_without_batches(connection, session_id, batches)
    if model is not None:
        raise refusal(Verdict.NO_BATCHES, model)


async def find_attachments(
    connection: Connection, submitter: Submitter, session_id: UUID, request: AttachmentRequest
) -> list[dict[str, Any]]:
    """As the event shows them. Raises if the input must be refused."""
    verdict, detail, attached = await store.find_attachments(connection, session_id, submitter.files_of, request)
    if verdict is not None:
        raise refusal(Verdict(verdict), detail)
    return attached


async def add_run(
    connection: Connection,
    principal: Principal,
    session_id: UUID,
    event: InputEvent,
    attached: list[dict[str, Any]] | None,
    settings: SubmitSettings,
) -> tuple[UUID, UUID | None]:
    """For an input that does not steer. A queued one starts when the runs before it have ended: at once if there are
    none. An interrupting one cancels the active run and starts before pending runs. Returns the ids of the new run and
    of the cancelled one."""
    is_queued, cancelled_run_id = event.delivery is Delivery.QUEUE, None
    if not is_queued:
        cancelled_run_id = await lifecycle.interrupt(connection, session_id, principal.workspace_id)
    elif await store.pending(connection, session_id) >= settings.session_pending_runs:
        raise errors.too_many_pending()
    state = RunState.PENDING if is_queued else RunState.QUEUED
    run = NewRun(
        new_id(), session_id, principal.workspace_id, state, principal.api_key_id, tracing.traceparent(), event.priority
    )
    await store.add(connection, run, new_id(), event, await caller_of(connection, principal), attached)
    if is_queued:
        await lifecycle_store.start_pending(connection, session_id)
    else:
        await lifecycle_store.enqueue(connection, session_id, run.id)
    await announce_events(connection, [session_id])
    return run.id, cancelled_run_id


async def retry(
    connection: Connection, principal: Principal, run_id: UUID, session_id: UUID, settings: SubmitSettings
) -> UUID:
    """Starts a run with copies of the inputs of an ended run."""
    if await lifecycle_store.unfinished_of(connection, session_id):
        raise errors.conflict(errors.ANOTHER_RUN_ACTIVE)
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
            raise errors.conflict(errors.NOTHING_TO_RETRY)
        case "too_many":
            raise errors.conflict(errors.TOO_MUCH_TO_RETRY)
    await lifecycle_store.enqueue(connection, session_id, new_run_id)
    await announce_events(connection, [session_id])
    return new_run_id


# Discards an input: withdraws one that no run has consumed, or drops one whose run failed.

WITHDRAWN, DROPPED = "withdrawn", "dropped"


async def discard(connection: Connection, session_id: UUID, principal: Principal, input_id: UUID) -> str:
    """Returns the reason that was logged. Part of the caller's transaction, which holds the session's lock."""
    found = {event.type: event for event in await store.events_of(connection, session_id, input_id)}
    accepted = found.get(EventType.INPUT_ACCEPTED)
    if accepted is None:
        raise errors.not_found("input")
    if EventType.INPUT_DISCARDED in found:
        raise errors.conflict(errors.INPUT_DISCARDED)
    consumed = found.get(EventType.INPUT_CONSUMED)
    actor = await caller_of(connection, principal)
    if consumed is None:
        run_id = await store.waits_in(connection, session_id, accepted)
        if run_id is None:
            raise errors.conflict(errors.INPUT_IN_USE)
        await _log(connection, session_id, run_id, input_id, WITHDRAWN, actor)
        if await store.withdraw(connection, run_id, accepted.text_bytes):
            await lifecycle.cancel(connection, run_id, session_id, principal.workspace_id)
        return WITHDRAWN
    if await store.end_of_run(connection, session_id, consumed) != EventType.RUN_FAILED:
        raise errors.conflict(errors.INPUT_IN_USE)
    await _log(connection, session_id, consumed.run_id, input_id, DROPPED, actor)
    await store.forget_words(connection, session_id, accepted)
    # The model sees one of an input and its copies by retries: if this copy goes, it must not see an earlier one.
    for original_id in await store.repeated_by(connection, session_id, accepted.id):
        earlier = {event.type: event for event in await store.events_of(connection, session_id, original_id)}
        if EventType.INPUT_CONSUMED in earlier and EventType.INPUT_DISCARDED not in earlier:
            await _log(connection, session_id, earlier[EventType.INPUT_CONSUMED].run_id, original_id, DROPPED, actor)
            if EventType.INPUT_ACCEPTED in earlier:
                await store.forget_words(connection, session_id, earlier[EventType.INPUT_ACCEPTED])
    return DROPPED


async def _log(
    connection: Connection, session_id: UUID, run_id: UUID, input_id: UUID, reason: str, actor: Caller
) -> None:
    data = {"input_id": str(input_id), "reason": reason, "actor": msgspec.to_builtins(actor)}
    await events.append(connection, session_id, run_id, NewEvent(EventType.INPUT_DISCARDED, data))
