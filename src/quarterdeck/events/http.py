"""The log of a session over HTTP, as JSON pages or Server-Sent Events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from quarterdeck.auth.access import Access
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Call
from quarterdeck.core.operation import ErrorCase, Query, operation
from quarterdeck.core.pages import MAX_LIMIT, LogPageRequest
from quarterdeck.core.settings import StreamSettings
from quarterdeck.events import service
from quarterdeck.events.model import DeltaBody, EventBody, EventPage, RetryBody
from quarterdeck.events.streams import EventHub, PageLoader, StreamSlots
from quarterdeck.http.request import Request
from quarterdeck.http.sse import EVENT_STREAM, EventStream

# Milliseconds after which a client reconnects.
_RETRY = b"retry: 1000\n\n"
_HEARTBEAT = b": still here\n\n"


class LastQuery(Query, frozen=True):
    last: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None,
        Meta(description="Leaves out all events before the last this many. Pages only."),
    ] = None


@operation(
    summary="Read the log of a session",
    description="Inputs, answers, tool calls and run states, oldest first. One page per call. With `Accept: "
    "text/event-stream`, streams all events after `after` and then new ones as they occur.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null at the current end; continue later with the ID of the last event.",
    session_token=True,
    refusals=(
        ErrorCase(
            "too_many_streams",
            errors.too_many_streams("credential", StreamSettings().per_credential),
            "The credential or its workspace has the maximum number of open event streams.",
            "Close unused streams, or retry after the seconds in Retry-After. Pages are not affected.",
        ),
    ),
)
async def list_session_events(
    request: Request,
    access: Access,
    settings: StreamSettings,
    hub: EventHub,
    pages: PageLoader,
    slots: StreamSlots,
    call: Call[None],
    session_id: UUID,
    page: LogPageRequest,
    query: LastQuery,
) -> EventPage | EventStream:
    if not request.prefers(EVENT_STREAM):
        return await service.list_session_events(access, call, session_id, page, query.last)
    stream = await service.follow_session_events(access, settings, hub, pages, slots, call, session_id, page.after)
    return EventStream(_encoded(stream), stream.closed, settings.send_seconds, stream.opened)


async def _encoded(stream: service.Stream) -> AsyncGenerator[bytes, None]:
    yield _RETRY
    async with aclosing(stream.items) as items:
        async for item in items:
            if item is None:
                yield _HEARTBEAT
            elif isinstance(item, DeltaBody):
                # A name of its own: older clients show every `message.delta` as text of the agent.
                kind = b"message.delta" if item.call_id is None else b"tool.delta"
                yield b"event: %b\ndata: %b\n\n" % (kind, msgspec.json.encode(item))
            elif isinstance(item, RetryBody):
                yield b"event: model.retry\ndata: %b\n\n" % msgspec.json.encode(item)
            else:
                yield item.encoded(_encode_events)


def _encode_events(events: list[EventBody]) -> bytes:
    return b"".join(map(_encode_event, events))


def _encode_event(event: EventBody) -> bytes:
    # JSON has no raw line breaks, so one `data` line is enough.
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, event.type.encode(), msgspec.json.encode(event))
