"""Operations on a session's log: read a page, or follow it as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

from msgspec import Struct

from quarterdeck.auth.access import Access, visible_session
from quarterdeck.core.actors import Principal
from quarterdeck.core.call import Call
from quarterdeck.core.pages import LogPageRequest
from quarterdeck.core.settings import StreamSettings
from quarterdeck.db.database import Connection
from quarterdeck.events import store
from quarterdeck.events.model import DeltaBody, EventPage, RetryBody
from quarterdeck.events.streams import EventHub, LogPage, PageLoader, Signal, StreamSlots, Subscription

# A page that reaches this size holds fewer events than were asked for.
_PAGE_BYTES = 4 * 1024 * 1024


async def list_session_events(
    access: Access,
    call: Call[None],
    session_id: UUID,
    request: LogPageRequest,
    last: int | None = None,
    page_bytes: int = _PAGE_BYTES,
) -> EventPage:
    async def show(connection: Connection, _: Principal, __: UUID) -> EventPage:
        after = request.after
        if last is not None:
            after = max(after, await store.id_before_last(connection, session_id, last))
        events, more = await store.page(connection, session_id, after, request.limit, page_bytes)
        return EventPage(events, events[-1].id if more else None)

    return await access.read(call, visible_session(call, session_id), show)


class Stream(Struct, frozen=True):
    """`items` yields pages, deltas and retries, and None as a heartbeat. `closed` is set when the stream must end, even
    if an item is still being sent. `opened` must be entered before the items are read; it raises if there are too many
    streams."""

    items: AsyncGenerator[LogPage | DeltaBody | RetryBody | None, None]
    closed: asyncio.Event
    opened: AbstractContextManager[None]


async def follow_session_events(
    access: Access,
    settings: StreamSettings,
    hub: EventHub,
    pages: PageLoader,
    slots: StreamSlots,
    call: Call[None],
    session_id: UUID,
    after: int,
) -> Stream:
    async def workspace_of_caller(_: Connection, principal: Principal, __: UUID) -> UUID:
        return principal.workspace_id

    with slots.opening(call.credential):
        workspace_id = await access.read(call, visible_session(call, session_id), workspace_of_caller)
    subscription = Subscription(session_id, call.credential, call.workspace_id, after, settings.queue_deltas)

    @contextmanager
    def opened() -> Iterator[None]:
        with slots.hold(call.credential, workspace_id), hub.subscribed(subscription):
            yield

    return Stream(_follow(settings, pages, subscription, workspace_id), subscription.closed, opened())


async def _follow(
    settings: StreamSettings, pages: PageLoader, subscription: Subscription, workspace_id: UUID
) -> AsyncGenerator[LogPage | DeltaBody | RetryBody | None, None]:
    while (item := await subscription.next(settings.heartbeat_seconds)) is not Signal.CLOSED:
        if item is Signal.TIMEOUT:
            yield None
        elif isinstance(item, DeltaBody | RetryBody):
            yield item
        else:
            more = True
            while more and not subscription.closed.is_set():
                page = await _next_page(pages, subscription, workspace_id)
                more = page is not None and page.more
                if page is not None and page.last_id is not None:
                    yield page


async def _next_page(pages: PageLoader, subscription: Subscription, workspace_id: UUID) -> LogPage | None:
    """None if the database is unavailable. The stream stays open then: its client would reconnect and get a 503, after
    which browsers do not retry. The next check by the hub requests the read again."""
    page = await pages.load(subscription.session_id, subscription.position, workspace_id)
    if page is None or page.last_id is None:
        return page
    for run_id, attempt in page.attempts:
        subscription.run_started(run_id, attempt)
    subscription.position = page.last_id
    return page
