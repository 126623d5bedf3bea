"""Submitting an input: starts a run or steers the active one, and says which."""

from uuid import UUID

from quarterdeck import errors
from quarterdeck.access.call import Call, admit
from quarterdeck.access.model import Permission
from quarterdeck.db.database import Connection
from quarterdeck.errors import ServiceError
from quarterdeck.idempotency.service import Answer, fingerprint
from quarterdeck.ids import new_id
from quarterdeck.parts import Parts
from quarterdeck.runs.model import InputEvent, Submission, Verdict
from quarterdeck.sessions.service import see_session

_REFUSALS = {
    Verdict.UNAUTHORIZED: errors.unauthorized,
    Verdict.NOT_FOUND: lambda: errors.not_found("session"),
    Verdict.FORBIDDEN: lambda: errors.forbidden(Permission.SESSION_MANAGE),
    Verdict.CONFLICT: errors.key_reused,
}


async def submit_input(parts: Parts, call: Call[InputEvent], session_id: UUID) -> Answer:
    caller = (call.credential, session_id, call.workspace_id)
    if call.fault is not None or caller not in parts.known_callers:
        # Strangers, and requests that cannot be carried out, do not get into the queue: they would wait for a session's
        # lock before anybody asked who they are.
        await _admit(parts, call, session_id)
        parts.known_callers.add(caller)
    try:
        event = call.read_body()
    except ServiceError:
        # Who asks and what they see still comes first.
        await _admit(parts, call, session_id)
        raise
    submitted = await parts.submissions.submit(
        Submission(
            credential=call.credential,
            session_id=session_id,
            workspace_id=call.workspace_id,
            text=event.text,
            input_id=new_id(),
            fresh_run_id=new_id(),
            idempotency_key=call.idempotency_key,
            fingerprint=fingerprint((session_id,), event),
            bytes=len(event.text.encode()),
        )
    )
    if submitted.api_key_id is not None:
        parts.last_used.note(submitted.api_key_id)
    if submitted.body is None:
        raise _REFUSALS[submitted.verdict]()
    return Answer(submitted.body, replayed=submitted.verdict is Verdict.REPLAYED)


async def _admit(parts: Parts, call: Call[InputEvent], session_id: UUID) -> None:
    see = see_session(call.workspace_id, session_id, own_token=True)

    async def check(connection: Connection) -> None:
        await admit(connection, parts.last_used, call, see, Permission.SESSION_MANAGE)

    await parts.database.read(check)
