"""Submitting an input, which starts a run or steers the active one and says which; reading and cancelling runs."""

from uuid import UUID

import msgspec

from quarterdeck import errors
from quarterdeck.access.call import Call, See
from quarterdeck.access.model import Permission, Principal
from quarterdeck.access.reading import look, read
from quarterdeck.audit.model import ObjectType
from quarterdeck.db.database import Connection
from quarterdeck.errors import ServiceError
from quarterdeck.idempotency.service import Answer, Made, fingerprint, perform
from quarterdeck.pages import PageRequest, take_page
from quarterdeck.parts import Parts
from quarterdeck.runs import lifecycle, store
from quarterdeck.runs.model import CancelledRunBody, InputEvent, RunBody, RunPage, RunState, Submission, Verdict
from quarterdeck.sessions.service import see_session

_REFUSALS = {
    Verdict.UNAUTHORIZED: errors.unauthorized,
    Verdict.NOT_FOUND: lambda: errors.not_found("session"),
    Verdict.FORBIDDEN: lambda: errors.forbidden(Permission.SESSION_MANAGE),
    Verdict.CONFLICT: errors.key_reused,
    Verdict.ARCHIVED: errors.archived_session,
}

# What is said to a caller who was not known, without a look at the session under its lock.
_NOT_SEEN = frozenset({Verdict.UNAUTHORIZED, Verdict.NOT_FOUND})


async def submit_input(parts: Parts, call: Call[InputEvent], session_id: UUID) -> Answer:
    who = (call.credential, session_id, call.workspace_id)
    is_known = parts.known_callers.has(*who)
    is_stranger = not is_known and not parts.known_callers.has_key(call.credential)
    if call.fault is not None or not call.allowance.is_granted or is_stranger:
        # Strangers, and requests that will not be carried out, do not get into the queue.
        await _admit(parts, call, session_id)
        parts.known_callers.add(*who)
        is_known = True
    try:
        event = call.read_body()
    except ServiceError:
        # Who asks and what they see still comes first.
        await _admit(parts, call, session_id)
        raise
    submission = Submission(
        credential=call.credential,
        session_id=session_id,
        workspace_id=call.workspace_id,
        text=event.text.encode(),
        idempotency_key=None if call.idempotency_key is None else call.idempotency_key.encode(),
        fingerprint=None if call.idempotency_key is None else fingerprint((session_id,), event),
        is_known=is_known,
    )
    submitted = await parts.submissions.submit(submission)
    if not is_known:
        if submitted.verdict in _NOT_SEEN:
            # Why is found out in the promised order. Or the session was busy, or is there only now.
            await _admit(parts, call, session_id)
            submitted = await parts.submissions.submit(msgspec.structs.replace(submission, is_known=True))
        parts.known_callers.add(*who)
    if submitted.api_key_id is not None:
        parts.last_used.note(submitted.api_key_id)
    if submitted.verdict is Verdict.UNAUTHORIZED:
        call.allowance.void(call.credential)
    if submitted.body is None:
        raise _REFUSALS[submitted.verdict]()
    return Answer(submitted.body, replayed=submitted.verdict is Verdict.REPLAYED)


async def _admit(parts: Parts, call: Call[InputEvent], session_id: UUID) -> None:
    see = see_session(call.workspace_id, session_id, own_token=True)
    await look(parts, call, see, Permission.SESSION_MANAGE)


async def get_run(parts: Parts, call: Call[None], run_id: UUID) -> RunBody:
    return await look(parts, call, _see_run(call.workspace_id, run_id), Permission.WORKSPACE_READ)


async def list_session_runs(parts: Parts, call: Call[None], session_id: UUID, request: PageRequest) -> RunPage:
    async def show(connection: Connection, _: Principal, __: UUID) -> RunPage:
        async def fetch(start: UUID, count: int) -> list[RunBody]:
            return await store.page(connection, session_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return RunPage(items, next_cursor)

    see = see_session(call.workspace_id, session_id, own_token=True)
    return await read(parts, call, see, Permission.WORKSPACE_READ, show)


async def cancel_run(parts: Parts, call: Call[None], run_id: UUID) -> Answer:
    """Ends a run at once. Cancelling one that has ended changes nothing and is no error."""

    async def effect(connection: Connection, principal: Principal, run: RunBody, _: None) -> Made:
        discarded = await lifecycle.cancel(connection, run_id, run.session_id, principal.workspace_id)
        ended = await store.get(connection, principal.workspace_id, run_id)
        if ended is None:
            # Deleted with its session while that was waited for.
            raise errors.not_found("run")
        ids = [UUID(one.id) for one in discarded]
        body = CancelledRunBody(**msgspec.structs.asdict(ended), discarded_input_ids=ids)
        # It may have ended by itself, now or long ago: what was seen before the session's lock does not tell.
        changed = ended.state is RunState.CANCELLED and run.state is not RunState.CANCELLED
        detail = {"session_id": str(run.session_id)}
        return Made(shown=body, kept=body, object_id=run_id, detail=detail, changed=changed)

    return await perform(
        parts,
        call,
        operation="cancel_run",
        see=_see_run(call.workspace_id, run_id),
        permission=Permission.SESSION_MANAGE,
        resource=(run_id,),
        about=ObjectType.RUN,
        effect=effect,
    )


def _see_run(named: UUID | None, run_id: UUID) -> See[RunBody]:
    """A run is seen by whoever sees its session."""

    async def see(connection: Connection, principal: Principal) -> RunBody:
        run = await store.get(connection, principal.workspace_id, run_id)
        if run is None:
            raise errors.not_found("run")
        try:
            await see_session(named, run.session_id, own_token=True)(connection, principal)
        except ServiceError:
            raise errors.not_found("run") from None
        return run

    return see
