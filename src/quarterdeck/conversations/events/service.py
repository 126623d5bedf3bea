"""Reading a session's log: page by page, or along with it as it grows."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

from msgspec import Struct

from quarterdeck.auth.access import Access
from quarterdeck.conversations.events import store
from quarterdeck.conversations.events.feed import Feed, Next, Reader
from quarterdeck.conversations.events.model import DeltaBody, EventPage, EventType
from quarterdeck.conversations.events.shared_pages import SharedPage, SharedPages
from quarterdeck.conversations.visibility import see_session
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.pages import LogPageRequest
from quarterdeck.core.settings import StreamSettings
from quarterdeck.db.database import Connection

# Beyond it a page ends early.
_PAGE_BYTES = 4 * 1024 * 1024


async def list_session_events(access: Access, call: Call[None], session_id: UUID, request: LogPageRequest) -> EventPage:
    async def show(connection: Connection, _: Principal, __: UUID) -> EventPage:
        events, more = await store.page(connection, session_id, request.after, request.limit, _PAGE_BYTES)
        return EventPage(events, events[-1].id if more else None)

    see = see_session(call.workspace_id, session_id, own_token=True)
    return await access.read(call, see, Permission.WORKSPACE_READ, show)


class Stream(Struct, frozen=True):
    """What is read, a page or a delta at a time; None when nothing has come for a while. `ended` says that no more is
    wanted, also to those who are still busy with an item."""

    items: AsyncGenerator[SharedPage | DeltaBody | None, None]
    ended: asyncio.Event


async def follow_session_events(
    access: Access,
    settings: StreamSettings,
    feed: Feed,
    pages: SharedPages,
    call: Call[None],
    session_id: UUID,
    after: int,
) -> Stream:
    """Admitted like any reader, and watched by the feed from the first item on."""
    see = see_session(call.workspace_id, session_id, own_token=True)
    await access.look(call, see, Permission.WORKSPACE_READ)
    reader = Reader(session_id, call.credential, call.workspace_id, after, settings.queue_deltas)
    return Stream(_follow(settings, feed, pages, reader), reader.ended)


async def _follow(
    settings: StreamSettings, feed: Feed, pages: SharedPages, reader: Reader
) -> AsyncGenerator[SharedPage | DeltaBody | None, None]:
    with feed.watching(reader):
        while (do := await reader.next(settings.heartbeat_seconds)) is not Next.STOP:
            if do is Next.NOTHING:
                yield None
            elif isinstance(do, DeltaBody):
                yield do
            else:
                more = True
                while more and not reader.ended.is_set():
                    page = await _next_page(pages, reader)
                    more = page is not None and page.more
                    if page is not None and page.events:
                        yield page


async def _next_page(pages: SharedPages, reader: Reader) -> SharedPage | None:
    """None: the database is away. Who is ended now is answered 503 next, on which a browser gives up for good; the feed
    makes this reader look again as soon as it can."""
    page = await pages.after(reader.session_id, reader.position)
    if page is None or not page.events:
        return page
    for event in page.events:
        if event.type == EventType.RUN_STARTED and event.run_id is not None:
            reader.is_current(event.run_id, event.data.get("attempt", 0))
    reader.position = page.events[-1].id
    return page
