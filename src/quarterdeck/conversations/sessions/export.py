"""Exports the log of a session, page by page, so that memory stays bounded."""

from collections.abc import AsyncGenerator, Callable
from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access
from quarterdeck.conversations.events.model import EventBody
from quarterdeck.conversations.events.service import list_session_events
from quarterdeck.conversations.sessions import markdown
from quarterdeck.conversations.sessions.model import SessionBody
from quarterdeck.core.call import Call
from quarterdeck.core.pages import LogPageRequest

# An export keeps one page in memory until its client has received it.
_PAGE_EVENTS = 100
_PAGE_BYTES = 256 * 1024


def json_lines(access: Access, call: Call[None], session_id: UUID) -> AsyncGenerator[bytes, None]:
    return _pages(access, call, session_id, b"", msgspec.json.Encoder().encode_lines)


def as_markdown(access: Access, call: Call[None], session: SessionBody) -> AsyncGenerator[bytes, None]:
    def encode(events: list[EventBody]) -> bytes:
        return markdown.body(events).encode()

    return _pages(access, call, session.id, markdown.head(session).encode(), encode)


async def _pages(
    access: Access, call: Call[None], session_id: UUID, head: bytes, encode: Callable[[list[EventBody]], bytes]
) -> AsyncGenerator[bytes, None]:
    """Each page checks the caller again: an export ends when its credential is revoked."""
    after: int | None = 0
    while after is not None:
        request = LogPageRequest(_PAGE_EVENTS, after)
        page = await list_session_events(access, call, session_id, request, _PAGE_BYTES)
        yield head + encode(page.items)
        head, after = b"", page.next_cursor
