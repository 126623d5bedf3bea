"""Which events of a log a fork copies, and which of them its model does not see. Pure functions, no I/O.

A fork has the runs that are not active and have consumed an input, with the inputs that they consumed. An input that no
copied run consumed is not copied: nobody would ever consume it in the fork.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID, uuid5

from msgspec import Struct

from quarterdeck.events.model import EventType
from quarterdeck.sessions.model import LogEntry

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
