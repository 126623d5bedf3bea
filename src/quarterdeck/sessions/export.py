"""Exports the log of a session, page by page, so that memory stays bounded."""

from collections.abc import AsyncGenerator
from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access
from quarterdeck.core.call import Call
from quarterdeck.core.pages import LogPageRequest
from quarterdeck.events.model import EventBody, EventType
from quarterdeck.events.service import list_session_events
from quarterdeck.sessions import markdown
from quarterdeck.sessions.model import SessionBody

# An export keeps one page in memory until its client has received it.
_PAGE_EVENTS = 100
_PAGE_BYTES = 256 * 1024
_INPUT_ENDS = (EventType.INPUT_CONSUMED, EventType.INPUT_DISCARDED)


async def json_lines(access: Access, call: Call[None], session_id: UUID) -> AsyncGenerator[bytes, None]:
    """The log as it is."""
    encode = msgspec.json.Encoder().encode_lines
    async for events in _pages(access, call, session_id):
        yield encode(events)


async def as_markdown(access: Access, call: Call[None], session: SessionBody) -> AsyncGenerator[bytes, None]:
    piece = bytearray(markdown.head(session).encode())
    async for text in _conversation(access, call, session.id):
        piece += text.encode()
        if len(piece) >= _PAGE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


async def _conversation(access: Access, call: Call[None], session_id: UUID) -> AsyncGenerator[str, None]:
    """Each input stands where a run has read it, which can be long after it was accepted. Only ids are kept until
    then: the texts of waiting inputs can be many megabytes."""
    waiting: dict[str, int] = {}
    async for events in _pages(access, call, session_id):
        accepted = {event.id: event for event in events if event.type == EventType.INPUT_ACCEPTED}
        for event in events:
            if event.id in accepted:
                waiting[event.data["input_id"]] = event.id
                continue
            if event.type in _INPUT_ENDS and (event_id := waiting.pop(event.data["input_id"], None)) is not None:
                found = accepted.get(event_id) or await _event(access, call, session_id, event_id)
                yield "" if found is None else markdown.event(found)
            yield markdown.event(event)
    unread = set(waiting.values())
    async for events in _pages(access, call, session_id, min(unread) - 1 if unread else None):
        for event in events:
            if event.id in unread:
                yield markdown.event(event) + markdown.UNREAD


async def _pages(
    access: Access, call: Call[None], session_id: UUID, after: int | None = 0
) -> AsyncGenerator[list[EventBody], None]:
    """Each page checks the caller again: an export ends when its credential is revoked."""
    while after is not None:
        page = await list_session_events(access, call, session_id, LogPageRequest(_PAGE_EVENTS, after), _PAGE_BYTES)
        yield page.items
        after = page.next_cursor


async def _event(access: Access, call: Call[None], session_id: UUID, event_id: int) -> EventBody | None:
    """None if it was deleted meanwhile."""
    page = await list_session_events(access, call, session_id, LogPageRequest(1, event_id - 1), _PAGE_BYTES)
    return next((event for event in page.items if event.id == event_id), None)
