"""Events: the entries of a session's log."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.example_ids import EVENING, RUN, SESSION
from quarterdeck.core.text_types import Moment


class EventType(StrEnum):
    SESSION_FORKED = "session.forked"
    INPUT_ACCEPTED = "input.accepted"
    INPUT_CONSUMED = "input.consumed"
    INPUT_DISCARDED = "input.discarded"
    RUN_STARTED = "run.started"
    RUN_REQUEUED = "run.requeued"
    MESSAGE = "message"
    TOOL_CALL = "tool.call"
    # Before a call with effects is carried out. A call that has started and has no result may have taken effect.
    TOOL_STARTED = "tool.started"
    TOOL_RESULT = "tool.result"
    ACTION_REQUIRED = "action.required"
    ACTION_RESOLVED = "action.resolved"
    NOTE = "note"
    # An MCP server could not be reached when the run began: the run goes on without its tools.
    MCP_UNAVAILABLE = "mcp.unavailable"
    # The model does not take them, so they are not sent. Data: model, settings (their names).
    SETTINGS_IGNORED = "settings.ignored"
    # Another model answers from here on. Data: from, to, reason. Text that was sent as deltas before is void.
    MODEL_SWITCHED = "model.switched"
    # What the request contained changed to fit into the context. Data: dropped_turns (how many turns are left out in
    # all), cut_turns (how many texts were cut in the middle; absent: none), omitted_files (how many attachments and
    # images are only mentioned; absent: none).
    CONTEXT_TRIMMED = "context.trimmed"
    # The model summarised the older part of the conversation. Data: dropped_turns (how many turns are left out in all),
    # kept_answers (how many answers before this event are still sent), summary (empty: it was left out without one).
    CONTEXT_COMPACTED = "context.compacted"
    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"


# Not an enum in the schema: during an upgrade, a worker of a newer release may write types that this release lacks.
_TYPES = f"One of {', '.join(f'`{event_type}`' for event_type in EventType)}; newer releases may add others."


class EventBody(Struct, frozen=True):
    """One entry. Ids increase; within a session they are in the order in which entries became visible."""

    id: int
    session_id: UUID
    run_id: UUID | None
    type: Annotated[str, Meta(description=_TYPES)]
    created_at: Moment
    data: dict[str, Any]


class EventPage(Struct, frozen=True):
    items: list[EventBody]
    next_cursor: Annotated[int | None, Meta(description="null at the current end; continue later with the last ID.")]


class DeltaBody(Struct, frozen=True, omit_defaults=True):
    """Text of a message that is still being written, or output of a tool call. Sent live, stored nowhere."""

    session_id: UUID
    run_id: UUID
    attempt: int
    text: str
    text_number: Annotated[
        int, Meta(description="Which text it is a part of. The next message, or the next try at it, has a higher one.")
    ]
    offset: Annotated[int, Meta(description="How many characters of this text come before.")]
    # None: the text of a message.
    call_id: str | None = None


class RetryBody(Struct, frozen=True):
    """A request to the model has failed and is repeated. Sent live, stored nowhere. The text that the failed request
    has sent as deltas is void."""

    session_id: UUID
    run_id: UUID
    attempt: Annotated[int, Meta(description="Number of the request that follows: 2 after the first failure.")]
    retry_in_seconds: float
    reason: str


class Head(Struct, frozen=True):
    """The workspace of a session and the id of the last event in its log, 0 if the log is empty."""

    workspace_id: UUID
    last_id: int


class NewEvent(Struct, frozen=True):
    """An event to be written. `record` is the provider's own representation, for the model only."""

    type: EventType
    data: dict[str, Any]
    record: Any = None


_ACCEPTED = EventBody(
    id=117,
    session_id=SESSION,
    run_id=RUN,
    type=EventType.INPUT_ACCEPTED,
    created_at=EVENING,
    data={"input_id": "0192f0d3-8c5e-7e02-9f71-1b5a3c7d9f09", "text": "Summarise the incidents of this week."},
)

EXAMPLES = (EventPage([_ACCEPTED], None),)
