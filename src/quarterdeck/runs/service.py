"""Operations on runs: submit an input (which starts or steers a run), read, cancel and retry runs."""

from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access, Lookup, visible_session
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.changes.audit_log import record_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, tracing
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call, fingerprint
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.events.log import lock_session
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.runs import creation, lifecycle, store
from quarterdeck.runs.creation import AttachmentRules
from quarterdeck.runs.input_batcher import InputBatcher
from quarterdeck.runs.model import (
    AttachmentRequest,
    CancelledRunBody,
    Delivery,
    InputEvent,
    Outcome,
    RunBody,
    RunPage,
    RunState,
    Submission,
    SubmitKindBody,
    Verdict,
)
from quarterdeck.runs.store import Submitter

_ARCHIVED = ErrorCase(
    "archived",
    errors.conflict(errors.ARCHIVED_SESSION),
    "The session is archived.",
    "Unarchive the session or use another one.",
)


@operation(
    summary="Submit a user turn to a session",
    description="Starts a run, or steers the active run if there is one, unless `delivery` says otherwise. The "
    "response says which.",
    permission=Permission.SESSION_MANAGE,
    success="The input is stored. It queued a new run or steered the active one.",
    idempotent=True,
    session_token=True,
    refusals=(
        _ARCHIVED,
        ErrorCase(
            "contended",
            errors.contended(),
            "The active run changed twice during the request. Nothing was stored.",
            "Retry immediately. Only this conflict has Retry-After.",
        ),
        ErrorCase(
            "run_full",
            errors.run_full(),
            "The active run has too many waiting inputs. Nothing was stored.",
            "Retry after the seconds in Retry-After, or cancel the run.",
        ),
        ErrorCase(
            "too_many_pending",
            errors.too_many_pending(),
            "The session has as many pending runs as the server's settings allow. Nothing was stored.",
            "Send it again after the seconds in Retry-After, or cancel a pending run.",
        ),
        ErrorCase(
            "session_files_full",
            errors.conflict(errors.SESSION_FILES_FULL),
            "The attachments exceed the size or the number of files that a session may have. Nothing was stored.",
            "Have the agent delete files, attach fewer, or use another session.",
        ),
    ),
)
async def submit_input(
    access: Access,
    inputs: InputBatcher,
    last_used: LastUsed,
    changes: Changes,
    settings: SubmitSettings,
    attachments: AttachmentRules,
    models: ModelCatalog,
    call: Call[InputEvent],
    session_id: UUID,
) -> Answer[SubmitKindBody]:
    if call.fault is not None or call.rate_limit.workspace_id is None or not call.rate_limit.is_allowed:
        # An invalid or limited request must not enter the batcher. This raises the error that has precedence. An
        # unknown caller is checked first, because the batcher limits the inputs of each workspace.
        await access.find(call, visible_session(call, session_id))
    try:
        event = call.read_body()
        requested = attachments.request(event)
    except ServiceError:
        # 401, 404 and 403 win over a bad body.
        await access.find(call, visible_session(call, session_id))
        raise
    if event.delivery is not Delivery.STEER:
        return await _deliver(changes, settings, models, call, session_id, requested)
    submission = Submission(
        credential=call.credential,
        session_id=session_id,
        workspace_id=call.workspace_id,
        text=event.text,
        idempotency_key=call.idempotency_key,
        fingerprint=None if call.idempotency_key is None else fingerprint((session_id,), event),
        owner=call.owner,
        attachments=requested,
        batch_models=creation.batch_models(event, models),
        traceparent=tracing.traceparent(),
    )
    submitted = await inputs.submit(submission)
    if submitted.used_id is not None:
        last_used.note(submitted.used_id)
    if submitted.verdict is Verdict.UNAUTHORIZED:
        call.rate_limit.forget(call.credential)
    if submitted.verdict not in (Verdict.ACCEPTED, Verdict.REPLAYED):
        detail = None if submitted.body is None else msgspec.json.decode(submitted.body)
        raise creation.refusal(submitted.verdict, detail)
    assert submitted.body is not None
    return Answer(submitted.body, replayed=submitted.verdict is Verdict.REPLAYED)


async def _deliver(
    changes: Changes,
    settings: SubmitSettings,
    models: ModelCatalog,
    call: Call[InputEvent],
    session_id: UUID,
    requested: AttachmentRequest | None,
) -> Answer[SubmitKindBody]:
    """An input that does not steer. It shares its Idempotency-Keys with those that do: the session's lock, under which
    both look for the receipt, keeps them apart."""

    submitter: Submitter | None = None

    async def lock(connection: Connection) -> None:
        nonlocal submitter
        await lock_session(connection, session_id)
        submitter = await creation.check_submitter(connection, call, session_id)

    async def effect(connection: Connection, principal: Principal, _: UUID, event: InputEvent) -> Made:
        assert submitter is not None
        creation.check_open(submitter)
        await creation.check_batches(connection, session_id, creation.batch_models(event, models))
        attached = None
        if requested is not None:
            attached = await creation.find_attachments(connection, submitter, session_id, requested)
        run_id, cancelled = await creation.add_run(connection, principal, session_id, event, attached, settings)
        if cancelled is not None:
            detail = {"session_id": str(session_id), "interrupted_by": str(run_id)}
            change = Change("cancel_run", ObjectType.RUN, cancelled, detail)
            await record_change(connection, principal, call.origin, change)
        body = SubmitKindBody(Outcome.NEW_RUN, run_id)
        # As for every input, there is no entry in the audit log.
        return Made.plain(body, run_id, None, False)

    return await changes.perform(call, visible_session(call, session_id), ObjectType.RUN, effect, lock=lock)


@operation(
    summary="Get a run",
    permission=Permission.WORKSPACE_READ,
    success="The run.",
    session_token=True,
)
async def get_run(access: Access, call: Call[None], run_id: UUID) -> RunBody:
    return await access.find(call, _visible_run(call, run_id))


@operation(
    summary="List the runs of a session",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    session_token=True,
)
async def list_session_runs(access: Access, call: Call[None], session_id: UUID, request: PageRequest) -> RunPage:
    return await access.page(call, visible_session(call, session_id), RunPage, request, store.page)


@operation(
    summary="Cancel a run",
    description="Ends the run immediately. Cancelling an ended run changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success="The run, and the inputs that it had not consumed.",
    idempotent=True,
    session_token=True,
)
async def cancel_run(changes: Changes, call: Call[None], run_id: UUID) -> Answer[CancelledRunBody]:
    async def effect(connection: Connection, principal: Principal, run: RunBody, _: None) -> Made:
        discarded = await lifecycle.cancel(connection, run_id, run.session_id, principal.workspace_id)
        # Deleted with its session while this waited for the session's lock.
        ended = errors.existing(await store.get(connection, principal.workspace_id, run_id), "run")
        body = CancelledRunBody(**msgspec.structs.asdict(ended), discarded_input_ids=discarded)
        # `run` was read before the session's lock was taken: the run may have ended by itself since.
        changed = ended.state is RunState.CANCELLED and run.state is not RunState.CANCELLED
        return Made.plain(body, run_id, None, changed, session_id=str(run.session_id))

    return await changes.perform(call, _visible_run(call, run_id), ObjectType.RUN, effect)


@operation(
    summary="Withdraw or drop an input",
    description="Withdraws an input that no run has consumed; a run that is left without any input is cancelled. Drops "
    "an input whose run failed: the model no longer sees it. The log keeps the input and says that it was discarded.",
    permission=Permission.SESSION_MANAGE,
    success="The input is discarded.",
    session_token=True,
    refusals=(
        ErrorCase(
            "input_discarded",
            errors.conflict(errors.INPUT_DISCARDED),
            "The input was withdrawn, dropped, or discarded when its run was cancelled.",
            "Nothing: no run will consume it.",
        ),
        ErrorCase(
            "input_in_use",
            errors.conflict(errors.INPUT_IN_USE),
            "A run has consumed the input, and the run is active, has succeeded or was cancelled.",
            "Cancel the run, or fork the session before the input.",
        ),
    ),
)
async def discard_input(changes: Changes, call: Call[None], session_id: UUID, input_id: UUID) -> Answer[None]:
    lookup = visible_session(call, session_id)

    async def effect(connection: Connection, principal: Principal, _: UUID, __: None) -> Made:
        await lock_session(connection, session_id)
        # Again: the session may have been deleted while this waited for its lock.
        await lookup(connection, principal)
        reason = await creation.discard(connection, session_id, principal, input_id)
        return Made.plain(None, session_id, input_id=str(input_id), reason=reason)

    return await changes.perform(call, lookup, ObjectType.SESSION, effect)


@operation(
    summary="Retry a run",
    description="Starts a run with the inputs of a failed or cancelled run: those that it consumed and those that its "
    "cancellation discarded. They are stored as new inputs, and their events name the run in `retried_from` "
    "and the first input in `copy_of`. The model sees each input once, and the stored answers and results of the "
    "retried run.",
    permission=Permission.SESSION_MANAGE,
    created=True,
    success="The new run.",
    idempotent=True,
    session_token=True,
    refusals=(
        ErrorCase(
            "not_retryable",
            errors.conflict(errors.NOT_RETRYABLE),
            "The run has succeeded, or it has not ended.",
            "Send a new input instead.",
        ),
        ErrorCase(
            "another_run_active",
            errors.conflict(errors.ANOTHER_RUN_ACTIVE),
            "The session has an active run.",
            "Wait for its end, or cancel it.",
        ),
        ErrorCase(
            "nothing_to_retry",
            errors.conflict(errors.NOTHING_TO_RETRY),
            "All inputs of the run were withdrawn or dropped.",
            "Send a new input instead.",
        ),
        ErrorCase(
            "too_much_to_retry",
            errors.conflict(errors.TOO_MUCH_TO_RETRY),
            "The run consumed more inputs, by number or by size, than may wait in one run.",
            "Send the inputs again one by one.",
        ),
        _ARCHIVED,
    ),
)
async def retry_run(changes: Changes, settings: SubmitSettings, call: Call[None], run_id: UUID) -> Answer[RunBody]:
    async def effect(connection: Connection, principal: Principal, run: RunBody, _: None) -> Made:
        await lock_session(connection, run.session_id)
        # Again: `run` was read before the session's lock was taken.
        ended = errors.existing(await store.get(connection, principal.workspace_id, run_id), "run")
        creation.check_open(await creation.check_submitter(connection, call, run.session_id))
        if ended.state not in (RunState.FAILED, RunState.CANCELLED):
            raise errors.conflict(errors.NOT_RETRYABLE)
        new_run_id = await creation.retry(connection, principal, run_id, run.session_id, settings)
        started = await store.get(connection, principal.workspace_id, new_run_id)
        assert started is not None
        return Made.plain(started, new_run_id, session_id=str(run.session_id), retried_from=str(run_id))

    return await changes.perform(call, _visible_run(call, run_id), ObjectType.RUN, effect)


def _visible_run(call: Call[None], run_id: UUID) -> Lookup[RunBody]:
    """A run is visible to callers that can see its session."""

    async def lookup(connection: Connection, principal: Principal) -> RunBody:
        run = errors.existing(await store.get(connection, principal.workspace_id, run_id), "run")
        try:
            await visible_session(call, run.session_id)(connection, principal)
        except ServiceError:
            raise errors.not_found("run") from None
        return run

    return lookup
