"""The entries of a session's log."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

Moment = Annotated[datetime, Meta(tz=True)]


class EventType(StrEnum):
    INPUT_ACCEPTED = "input.accepted"
    INPUT_CONSUMED = "input.consumed"
    INPUT_DISCARDED = "input.discarded"
    RUN_STARTED = "run.started"
    RUN_REQUEUED = "run.requeued"
    MESSAGE = "message"
    TOOL_CALL = "tool.call"
    TOOL_RESULT = "tool.result"
    CONTEXT_TRIMMED = "context.trimmed"
    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"


class EventBody(Struct, frozen=True):
    """One entry. Ids increase; within a session they are in the order in which entries became visible."""

    id: int
    session_id: UUID
    run_id: UUID | None
    type: EventType
    created_at: Moment
    data: dict[str, Any]


class EventPage(Struct, frozen=True):
    items: list[EventBody]
    next_cursor: Annotated[int | None, Meta(description="null at the current end; go on later with the last id.")]


class NewEvent(Struct, frozen=True):
    """An entry about to be written. `record` is for the model that made it and is never shown."""

    type: EventType
    data: dict[str, Any]
    record: Any = None
