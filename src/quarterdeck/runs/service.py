"""Operations on runs: submit an input (which starts or steers a run), read, cancel and retry runs."""

from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access, Lookup, visible_session
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.changes.audit.model import Change, ObjectType
from quarterdeck.changes.audit.service import record_change
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, tracing
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call, fingerprint
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.db.database import Connection
from quarterdeck.events.log import lock_session
from quarterdeck.runs import creation, lifecycle, store
from quarterdeck.runs.attachments import AttachmentRules, refused
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

_REFUSALS = {
    Verdict.UNAUTHORIZED: errors.unauthorized,
    Verdict.NOT_FOUND: lambda: errors.not_found("session"),
    Verdict.FORBIDDEN: lambda: errors.forbidden(Permission.SESSION_MANAGE),
    Verdict.CONFLICT: errors.key_reused,
    Verdict.ARCHIVED: errors.archived_session,
    Verdict.FULL: errors.run_full,
}


async def submit_input(
    access: Access,
    inputs: InputBatcher,
    last_used: LastUsed,
    changes: Changes,
    settings: SubmitSettings,
    attachments: AttachmentRules,
    call: Call[InputEvent],
    session_id: UUID,
) -> Answer:
    if call.fault is not None or call.rate_limit.workspace_id is None or not call.rate_limit.is_allowed:
        # An invalid or limited request must not enter the batcher. This raises the error that has precedence. An
        # unknown caller is checked first, because the batcher limits the inputs of each workspace.
        await _admit(access, call, session_id)
    try:
        event = call.read_body()
        requested = attachments.request(event)
    except ServiceError:
        # 401, 404 and 403 win over a bad body.
        await _admit(access, call, session_id)
        raise
    if event.delivery is not Delivery.STEER:
        return await _deliver(changes, settings, call, session_id, requested)
    submission = Submission(
        credential=call.credential,
        session_id=session_id,
        workspace_id=call.workspace_id,
        text=event.text,
        idempotency_key=call.idempotency_key,
        fingerprint=None if call.idempotency_key is None else fingerprint((session_id,), event),
        owner=call.owner,
        attachments=requested,
        traceparent=tracing.traceparent(),
    )
    submitted = await inputs.submit(submission)
    if submitted.api_key_id is not None:
        last_used.note(submitted.api_key_id)
    if submitted.verdict is Verdict.UNAUTHORIZED:
        call.rate_limit.forget(call.credential)
    if submitted.verdict in _REFUSALS:
        raise _REFUSALS[submitted.verdict]()
    assert submitted.body is not None
    if submitted.verdict not in (Verdict.ACCEPTED, Verdict.REPLAYED):
        raise refused(submitted.verdict, msgspec.json.decode(submitted.body))
    return Answer(submitted.body, replayed=submitted.verdict is Verdict.REPLAYED)


async def _admit(access: Access, call: Call[InputEvent], session_id: UUID) -> None:
    lookup = visible_session(call.workspace_id, session_id, own_token=True)
    await access.find(call, lookup, Permission.SESSION_MANAGE)


async def _deliver(
    changes: Changes,
    settings: SubmitSettings,
    call: Call[InputEvent],
    session_id: UUID,
    requested: AttachmentRequest | None,
) -> Answer:
    """An input that does not steer. It shares its Idempotency-Keys with those that do: the session's lock, under which
    both look for the receipt, keeps them apart."""

    async def effect(connection: Connection, principal: Principal, _: UUID, event: InputEvent) -> Made:
        await _check_open(connection, session_id)
        attached = None
        if requested is not None:
            attached = await creation.find_attachments(connection, principal, session_id, requested)
        if event.delivery is Delivery.QUEUE:
            run_id = await creation.queue_input(connection, principal, session_id, event.text, attached, settings)
        else:
            run_id, cancelled = await creation.interrupt_with_input(
                connection, principal, session_id, event.text, attached
            )
            if cancelled is not None:
                detail = {"session_id": str(session_id), "interrupted_by": str(run_id)}
                change = Change("cancel_run", ObjectType.RUN, cancelled, detail)
                await record_change(connection, principal, call.origin, change)
        body = SubmitKindBody(Outcome.NEW_RUN, run_id)
        # As for every input, there is no entry in the audit log.
        return Made(shown=body, kept=body, object_id=run_id, changed=False)

    async def lock(connection: Connection) -> None:
        await lock_session(connection, session_id)
        if await store.is_archived(connection, session_id) is None:
            raise errors.not_found("session")

    return await changes.perform(
        call,
        operation="submit_input",
        lookup=visible_session(call.workspace_id, session_id, own_token=True),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.RUN,
        effect=effect,
        lock=lock,
    )


async def _check_open(connection: Connection, session_id: UUID) -> None:
    if await store.is_archived(connection, session_id):
        raise errors.archived_session()


async def get_run(access: Access, call: Call[None], run_id: UUID) -> RunBody:
    return await access.find(call, _visible_run(call.workspace_id, run_id), Permission.WORKSPACE_READ)


async def list_session_runs(access: Access, call: Call[None], session_id: UUID, request: PageRequest) -> RunPage:
    async def show(connection: Connection, _: Principal, __: UUID) -> RunPage:
        async def fetch(start: UUID, count: int) -> list[RunBody]:
            return await store.page(connection, session_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return RunPage(items, next_cursor)

    lookup = visible_session(call.workspace_id, session_id, own_token=True)
    return await access.read(call, lookup, Permission.WORKSPACE_READ, show)


async def cancel_run(changes: Changes, call: Call[None], run_id: UUID) -> Answer:
    """Takes effect at once. Cancelling an ended run changes nothing and is no error."""

    async def effect(connection: Connection, principal: Principal, run: RunBody, _: None) -> Made:
        discarded = await lifecycle.cancel(connection, run_id, run.session_id, principal.workspace_id)
        ended = await store.get(connection, principal.workspace_id, run_id)
        if ended is None:
            # Deleted with its session while this waited for the session's lock.
            raise errors.not_found("run")
        body = CancelledRunBody(**msgspec.structs.asdict(ended), discarded_input_ids=discarded)
        # `run` was read before the session's lock was taken: the run may have ended by itself since.
        changed = ended.state is RunState.CANCELLED and run.state is not RunState.CANCELLED
        detail = {"session_id": str(run.session_id)}
        return Made(shown=body, kept=body, object_id=run_id, detail=detail, changed=changed)

    return await changes.perform(
        call,
        operation="cancel_run",
        lookup=_visible_run(call.workspace_id, run_id),
        permission=Permission.SESSION_MANAGE,
        resource=(run_id,),
        about=ObjectType.RUN,
        effect=effect,
    )


async def discard_input(changes: Changes, call: Call[None], session_id: UUID, input_id: UUID) -> Answer:
    lookup = visible_session(call.workspace_id, session_id, own_token=True)

    async def effect(connection: Connection, principal: Principal, _: UUID, __: None) -> Made:
        await lock_session(connection, session_id)
        # Again: the session may have been deleted while this waited for its lock.
        await lookup(connection, principal)
        reason = await creation.discard(connection, session_id, principal, input_id)
        detail = {"input_id": str(input_id), "reason": reason}
        return Made(shown=None, kept=None, object_id=session_id, detail=detail)

    return await changes.perform(
        call,
        operation="discard_input",
        lookup=lookup,
        permission=Permission.SESSION_MANAGE,
        resource=(session_id, input_id),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def retry_run(changes: Changes, settings: SubmitSettings, call: Call[None], run_id: UUID) -> Answer:
    async def effect(connection: Connection, principal: Principal, run: RunBody, _: None) -> Made:
        await lock_session(connection, run.session_id)
        await _check_open(connection, run.session_id)
        # Again: `run` was read before the session's lock was taken.
        ended = await store.get(connection, principal.workspace_id, run_id)
        if ended is None:
            raise errors.not_found("run")
        if ended.state not in (RunState.FAILED, RunState.CANCELLED):
            raise errors.not_retryable()
        new_run_id = await creation.retry(connection, principal, run_id, run.session_id, settings)
        started = await store.get(connection, principal.workspace_id, new_run_id)
        assert started is not None
        return Made.plain(started, new_run_id, session_id=str(run.session_id), retried_from=str(run_id))

    return await changes.perform(
        call,
        operation="retry_run",
        lookup=_visible_run(call.workspace_id, run_id),
        permission=Permission.SESSION_MANAGE,
        resource=(run_id,),
        about=ObjectType.RUN,
        effect=effect,
    )


def _visible_run(requested_id: UUID | None, run_id: UUID) -> Lookup[RunBody]:
    """A run is visible to callers that can see its session."""

    async def lookup(connection: Connection, principal: Principal) -> RunBody:
        run = await store.get(connection, principal.workspace_id, run_id)
        if run is None:
            raise errors.not_found("run")
        try:
            await visible_session(requested_id, run.session_id, own_token=True)(connection, principal)
        except ServiceError:
            raise errors.not_found("run") from None
        return run

    return lookup
