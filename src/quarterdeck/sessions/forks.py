"""Forks: a new session with the history of another one, up to an event."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from quarterdeck.agents.configuration import AgentReference
from quarterdeck.core import errors
from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import ForkSettings
from quarterdeck.db.database import Connection
from quarterdeck.events import log
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.session_files import service as session_files
from quarterdeck.sessions import rules, store
from quarterdeck.sessions.model import ForkedFrom, LogEntry, NewSession, SessionBody, configuration_of

# Selects the events of a log that a fork copies, and those of them that its model does not see. Pure functions, no I/O.
#
# A fork has the runs that are not active and have consumed an input, with the inputs that they consumed. An input that
# no copied run consumed is not copied: nobody would ever consume it in the fork.

_RUN_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)


class Selection(Struct, frozen=True):
    events: list[LogEntry]
    # Ids of events that the model of the fork does not see.
    hidden: set[int]
    # The run that goes on behind the last copied event.
    cut_run: UUID | None


def select(entries: Sequence[LogEntry], last_answers: Mapping[UUID, int]) -> Selection:
    """`last_answers`: the last messages of runs with `unanswered_left_out`, also behind the copied part."""
    consumed = [one for one in entries if one.type == EventType.INPUT_CONSUMED and not one.run_is_active]
    runs = {one.run_id for one in consumed}
    inputs = {one.accepted_id for one in consumed}

    def is_copied(one: LogEntry) -> bool:
        if one.type == EventType.INPUT_ACCEPTED:
            return one.id in inputs
        if one.type == EventType.INPUT_DISCARDED:
            return one.accepted_id in inputs
        return one.run_id in runs

    copied = [one for one in entries if is_copied(one)]
    return Selection(copied, {one.id for one in copied if _is_hidden(one, last_answers)}, _cut_run(copied))


def _is_hidden(one: LogEntry, last_answers: Mapping[UUID, int]) -> bool:
    if one.is_dropped:
        return True
    if not one.unanswered_left_out or one.type not in (EventType.INPUT_CONSUMED, EventType.TOOL_RESULT):
        return False
    return one.run_id is None or one.id > last_answers.get(one.run_id, 0)


def _cut_run(copied: Iterable[LogEntry]) -> UUID | None:
    """Runs follow one another, so only the last one can be cut."""
    open_run: UUID | None = None
    for one in copied:
        if one.type in _RUN_ENDS:
            open_run = None
        elif one.type != EventType.INPUT_ACCEPTED and one.type != EventType.INPUT_DISCARDED:
            open_run = one.run_id
    return open_run


def fork_run_id(fork_id: UUID, run_id: UUID | None) -> UUID | None:
    """A copied run has an id of its own: the one of the origin names a run that can be retried there."""
    return None if run_id is None else uuid5(fork_id, str(run_id))


def batches(events: Sequence[LogEntry], batch_events: int, batch_bytes: int) -> list[list[LogEntry]]:
    found: list[list[LogEntry]] = []
    used_bytes = 0
    for one in events:
        if not found or len(found[-1]) >= batch_events or used_bytes + one.stored_bytes > batch_bytes:
            found.append([])
            used_bytes = 0
        found[-1].append(one)
        used_bytes += one.stored_bytes
    return found


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
    if before_event_id is not None and not await store.has_event(connection, origin.id, before_event_id):
        raise errors.invalid("before_event_id is not the id of an event of this session.")
    end = _END_OF_LOG if before_event_id is None else before_event_id
    entries = await store.entries(connection, origin.id, end, settings.max_events + 1)
    if len(entries) > settings.max_events or sum(one.stored_bytes for one in entries) > settings.max_bytes:
        raise errors.conflict(errors.FORK_TOO_LARGE)
    left_out_runs = {one.run_id for one in entries if one.unanswered_left_out and one.run_id is not None}
    last_answers = await store.last_answers(connection, origin.id, list(left_out_runs)) if left_out_runs else {}
    selection = select(entries, last_answers)

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
    await log.append(connection, fork_id, None, NewEvent(EventType.SESSION_FORKED, data))
    await store.mark_title(connection, origin.id, fork_id)
    ids = await store.new_event_ids(connection, len(selection.events))
    new_ids = {one.id: new_event_id for one, new_event_id in zip(selection.events, ids, strict=True)}
    # The search finds these texts in the origin. Adding their words again would take longer than a request may.
    await store.add_no_words(connection)
    for batch in batches(selection.events, _BATCH_EVENTS, _BATCH_BYTES):
        run_ids = [fork_run_id(fork_id, one.run_id) for one in batch]
        await store.copy_events(connection, origin.id, fork_id, batch, run_ids, new_ids, selection.hidden)
    await session_files.copy_to_fork(connection, origin.id, fork_id)
    if selection.cut_run is not None:
        # Without it, clients would take the run for an active one.
        cancelled = NewEvent(EventType.RUN_CANCELLED, {"discarded_input_ids": []})
        await log.append(connection, fork_id, fork_run_id(fork_id, selection.cut_run), cancelled)
    return fork_id
