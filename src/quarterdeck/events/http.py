"""The log of a session over HTTP: JSON pages, or Server-Sent Events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from quarterdeck.access.model import Permission
from quarterdeck.events import service
from quarterdeck.events.model import DeltaBody, EventBody, EventPage
from quarterdeck.http.event_stream import EVENT_STREAM, EventStream
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import operation
from quarterdeck.parts import Parts

# How long a client waits before it comes back.
_RETRY = b"retry: 1000\n\n"
_HEARTBEAT = b": still here\n\n"


@operation(
    summary="Read the log of a session",
    description="Oldest first: what was asked, what the agent did, how its runs ended. One page per call, or, "
    "with `Accept: text/event-stream`, everything from `after` on and then what comes, as it comes.",
    permission=Permission.WORKSPACE_READ,
    success_type=EventPage,
    success="One page. next_cursor is null at the current end; go on later with the id of the last event.",
    log=True,
    session_token=True,
)
async def list_session_events(parts: Parts, incoming: Incoming) -> EventPage | EventStream:
    session_id = incoming.path_id("session_id")
    request = incoming.log_page_request()
    call = incoming.call_without_body()
    if not incoming.prefers(EVENT_STREAM):
        return await service.list_session_events(parts, call, session_id, request)
    stream = await service.follow_session_events(parts, call, session_id, request.after)
    return EventStream(_written(stream), stream.ended, parts.settings.stream.send_seconds)


async def _written(stream: service.Stream) -> AsyncGenerator[bytes, None]:
    yield _RETRY
    async with aclosing(stream.items) as items:
        async for item in items:
            if item is None:
                yield _HEARTBEAT
            elif isinstance(item, DeltaBody):
                yield b"event: message.delta\ndata: %b\n\n" % msgspec.json.encode(item)
            else:
                yield item.written(_entries)


def _entries(events: list[EventBody]) -> bytes:
    return b"".join(map(_entry, events))


def _entry(event: EventBody) -> bytes:
    # JSON holds no raw line break: one `data` line each.
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, event.type.encode(), msgspec.json.encode(event))
