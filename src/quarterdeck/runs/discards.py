"""Discards an input: withdraws one that no run has consumed, or drops one whose run failed."""

from uuid import UUID

import msgspec

from quarterdeck.auth.service import caller_of
from quarterdeck.core import errors
from quarterdeck.core.actors import Caller, Principal
from quarterdeck.db.database import Connection
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.events.notifications import announce_events
from quarterdeck.runs import discards_store as store
from quarterdeck.runs import lifecycle

WITHDRAWN, DROPPED = "withdrawn", "dropped"


async def discard(connection: Connection, session_id: UUID, principal: Principal, input_id: UUID) -> str:
    """Returns the reason that was logged. Part of the caller's transaction, which holds the session's lock."""
    found = {event.type: event for event in await store.events_of(connection, session_id, input_id)}
    accepted = found.get(EventType.INPUT_ACCEPTED)
    if accepted is None:
        raise errors.not_found("input")
    if EventType.INPUT_DISCARDED in found:
        raise errors.input_discarded()
    consumed = found.get(EventType.INPUT_CONSUMED)
    actor = await caller_of(connection, principal)
    if consumed is None:
        run_id = await store.waits_in(connection, session_id, accepted)
        if run_id is None:
            raise errors.input_in_use()
        await _log(connection, session_id, run_id, input_id, WITHDRAWN, actor)
        if await store.withdraw(connection, run_id, accepted.text_bytes):
            await lifecycle.cancel(connection, run_id, session_id, principal.workspace_id)
        return WITHDRAWN
    if await store.end_of_run(connection, session_id, consumed) != EventType.RUN_FAILED:
        raise errors.input_in_use()
    await _log(connection, session_id, consumed.run_id, input_id, DROPPED, actor)
    await store.forget_words(connection, session_id, accepted)
    # Of an input and its copies by retries, the model sees one: if this copy goes, it must not see an earlier one.
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
    await events.append(connection, session_id, run_id, [NewEvent(EventType.INPUT_DISCARDED, data)])
    await announce_events(connection, [session_id])
