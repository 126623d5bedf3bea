"""Forks: a new session with the history of another one, up to an event."""

from uuid import UUID

import msgspec

from quarterdeck.agents.configuration import AgentReference
from quarterdeck.core import errors
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import ForkSettings
from quarterdeck.db.database import Connection
from quarterdeck.events import log
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.session_files import records as workspace_files
from quarterdeck.sessions import fork_selection, rules, store
from quarterdeck.sessions import forks_store as copies
from quarterdeck.sessions.model import ForkedFrom, NewSession, SessionBody, configuration_of

# Copied by one statement.
_BATCH_EVENTS = 1_000
_BATCH_BYTES = 4 * 1024 * 1024
_END_OF_LOG = 2**63 - 1


async def fork(
    connection: Connection, origin: SessionBody, before_event_id: int | None, user_id: UUID, settings: ForkSettings
) -> UUID:
    """Part of the caller's transaction, which keeps the origin from being deleted. It needs no lock of the origin:
    events are never changed, and one statement reads which ones are copied. The files are those of now, wherever the
    log is cut: earlier ones are not kept."""
    if before_event_id is not None and not await copies.has_event(connection, origin.id, before_event_id):
        raise errors.invalid("before_event_id is not the id of an event of this session.")
    end = _END_OF_LOG if before_event_id is None else before_event_id
    entries = await copies.entries(connection, origin.id, end, settings.max_events + 1)
    if len(entries) > settings.max_events or sum(one.stored_bytes for one in entries) > settings.max_bytes:
        raise errors.fork_too_large()
    left_out_runs = {one.run_id for one in entries if one.unanswered_left_out and one.run_id is not None}
    last_answers = await copies.last_answers(connection, origin.id, list(left_out_runs)) if left_out_runs else {}
    selection = fork_selection.select(entries, last_answers)

    fork_id = new_id()
    forked_from = ForkedFrom(origin.id, before_event_id)
    fork = NewSession(
        title=rules.fork_title(origin.title),
        configuration=configuration_of(origin),
        agent=None if origin.agent is None else AgentReference(origin.agent.agent_id, origin.agent.version),
        overrides=origin.overrides,
    )
    await store.add(connection, fork_id, origin.workspace_id, fork, user_id, forked_from)
    data = msgspec.to_builtins(forked_from)
    await log.append(connection, fork_id, None, [NewEvent(EventType.SESSION_FORKED, data)])
    await copies.mark_title(connection, origin.id, fork_id)
    ids = await copies.new_event_ids(connection, len(selection.events))
    new_ids = {one.id: new_event_id for one, new_event_id in zip(selection.events, ids, strict=True)}
    # The search finds these texts in the origin. Adding their words again would take longer than a request may.
    await copies.add_no_words(connection)
    for batch in fork_selection.batches(selection.events, _BATCH_EVENTS, _BATCH_BYTES):
        run_ids = [fork_selection.fork_run_id(fork_id, one.run_id) for one in batch]
        await copies.copy_events(connection, origin.id, fork_id, batch, run_ids, new_ids, selection.hidden)
    await workspace_files.copy_to_fork(connection, origin.id, fork_id)
    if selection.cut_run is not None:
        # Without it, clients would take the run for an active one.
        cancelled = NewEvent(EventType.RUN_CANCELLED, {"discarded_input_ids": []})
        await log.append(connection, fork_id, fork_selection.fork_run_id(fork_id, selection.cut_run), [cancelled])
    return fork_id
