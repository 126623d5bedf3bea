"""Reading a session's log: page by page, or along with it as it grows."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

from msgspec import Struct

from quarterdeck.access.call import Call, admit
from quarterdeck.access.model import Permission
from quarterdeck.db.database import Connection
from quarterdeck.errors import ServiceError
from quarterdeck.events import store
from quarterdeck.events.feed import Reader
from quarterdeck.events.model import DeltaBody, EventBody, EventPage, EventType
from quarterdeck.pages import LogPageRequest
from quarterdeck.parts import Parts
from quarterdeck.sessions.service import see_session

# Beyond it a page ends early. A stream holds one page at a time for as long as its reader takes.
_PAGE_BYTES = 4 * 1024 * 1024
_STREAM_PAGE_BYTES = 256 * 1024
_STREAM_PAGE_EVENTS = 100


async def list_session_events(parts: Parts, call: Call[None], session_id: UUID, request: LogPageRequest) -> EventPage:
    async def read(connection: Connection) -> EventPage:
        await _admit(connection, parts, call, session_id)
        events, more = await store.page(connection, session_id, request.after, request.limit, _PAGE_BYTES)
        return EventPage(events, events[-1].id if more else None)

    return await parts.database.read(read)


class Stream(Struct, frozen=True):
    """What is read, a page or a delta at a time; None when nothing has come for a while. `ended` says that no more is
    wanted, also to those who are still busy with an item."""

    items: AsyncGenerator[list[EventBody] | DeltaBody | None, None]
    ended: asyncio.Event


async def follow_session_events(parts: Parts, call: Call[None], session_id: UUID, after: int) -> Stream:
    """Admitted like any reader, and watched by the feed from the first item on."""

    async def check(connection: Connection) -> None:
        await _admit(connection, parts, call, session_id)

    await parts.database.read(check)
    reader = Reader(session_id, call.credential, call.workspace_id, after, parts.settings.stream.queue_deltas)
    return Stream(_follow(parts, reader), reader.ended)


async def _follow(parts: Parts, reader: Reader) -> AsyncGenerator[list[EventBody] | DeltaBody | None, None]:
    with parts.feed.watching(reader):
        while True:
            try:
                async with asyncio.timeout(parts.settings.stream.heartbeat_seconds):
                    delta = await reader.next()
            except TimeoutError:
                yield None
                continue
            if delta is not None:
                yield delta
                continue
            while not reader.ended.is_set():
                events, more = await _next_page(parts, reader)
                if events:
                    yield events
                if not more:
                    break
            if reader.ended.is_set():
                return


async def _next_page(parts: Parts, reader: Reader) -> tuple[list[EventBody], bool]:
    async def read(connection: Connection) -> tuple[list[EventBody], bool]:
        return await store.page(connection, reader.session_id, reader.position, _STREAM_PAGE_EVENTS, _STREAM_PAGE_BYTES)

    try:
        events, more = await parts.database.read(read)
    except ServiceError:
        # The database is away. Who is ended now is answered 503 next, on which a browser gives up for good; the feed
        # makes this reader look again as soon as it can.
        return [], False
    for event in events:
        if event.type == EventType.RUN_STARTED and event.run_id is not None:
            reader.is_current(event.run_id, event.data.get("attempt", 0))
    if events:
        reader.position = events[-1].id
    return events, more


async def _admit(connection: Connection, parts: Parts, call: Call[None], session_id: UUID) -> None:
    see = see_session(call.workspace_id, session_id, own_token=True)
    await admit(connection, parts.last_used, call, see, Permission.WORKSPACE_READ)
