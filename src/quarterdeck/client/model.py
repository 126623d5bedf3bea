"""The entries of a session's log as a client reads them."""

from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.text_types import Moment


class Event(Struct, frozen=True):
    """One entry. `type` is text, not one of a closed set: a newer server has types that this client does not know."""

    id: int
    session_id: UUID
    run_id: UUID | None
    type: str
    created_at: Moment
    data: dict[str, Any]


class EventPage(Struct, frozen=True):
    items: list[Event]
    next_cursor: int | None


class Delta(Struct, frozen=True):
    """Text of a message that is still being written. The whole text follows as an Event of the type `message`."""

    session_id: UUID
    run_id: UUID
    attempt: int
    text: str
