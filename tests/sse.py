"""A client of event streams that checks every line."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import httpx
from msgspec import Struct

from quarterdeck.events.live_text import TextPiece, live_payloads
from quarterdeck.events.log import notify
from tests.world import World

# Only a failure takes this long.
PATIENCE_SECONDS = 120.0
_READ: dict[str, Callable[[str], Any]] = {"id": int, "data": json.loads}


class Sent(Struct, frozen=True):
    """One message of a stream. A comment has only its text."""

    event: str = ""
    data: Any = None
    id: int | None = None
    comment: str = ""
    retry: str = ""


class EventReader:
    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self, seconds: float = PATIENCE_SECONDS) -> Sent | None:
        """The next message; None when the stream has ended."""
        async with asyncio.timeout(seconds):
            fields: dict[str, Any] = {}
            async for line in self._lines:
                if line == "" and fields:
                    return Sent(**fields)
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                name = name or "comment"
                assert name in ("id", "event", "data", "retry", "comment"), line
                assert name not in fields, f"{name} twice in one message"
                fields[name] = _READ.get(name, str)(value)
            assert fields == {}, "a message was cut short"
            return None

    async def stored(self, count: int, seconds: float = PATIENCE_SECONDS) -> list[Any]:
        """The next `count` stored events, as their JSON."""
        found: list[Any] = []
        async with asyncio.timeout(seconds):
            while len(found) < count:
                message = await self.next()
                assert message is not None, f"the stream ended after {len(found)} of {count}"
                if message.id is not None:
                    assert message.data["id"] == message.id
                    assert message.data["type"] == message.event
                    found.append(message.data)
        return found

    async def delta(self) -> Any:
        while True:
            message = await self.next()
            assert message is not None, "the stream ended"
            if message.event == "message.delta":
                assert message.id is None
                return message.data

    async def ends(self, seconds: float) -> bool:
        """Whether the stream ends in time. More messages may come before; a cut connection counts as the end."""
        try:
            async with asyncio.timeout(seconds):
                while await self.next(seconds) is not None:
                    pass
        except TimeoutError:
            return False
        except httpx.TransportError:
            pass
        return True


@asynccontextmanager
async def reading(
    url: str, session_id: str, key: str, *, after: int | None = None, last_event_id: int | None = None
) -> AsyncIterator[EventReader]:
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = str(last_event_id)
    path = f"{url}/v1/sessions/{session_id}/events" + ("" if after is None else f"?after={after}")
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(PATIENCE_SECONDS, read=None)) as http,
        http.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200, await response.aread()
        yield EventReader(response)


_numbers = count(1)


async def say(
    world: World,
    session_id: str,
    run_id: UUID,
    attempt: int,
    text: str,
    *,
    number: int | None = None,
    offset: int = 0,
) -> None:
    """Send text, as a worker does while its model writes. Without a number, a text of its own."""
    piece = TextPiece(UUID(session_id), run_id, attempt, number or next(_numbers), offset, text)
    async with await world.connect() as connection:
        await notify(connection, live_payloads([piece]))


async def heard(world: World, session_id: str, *readers: EventReader) -> None:
    """Wait until notifications reach these readers, and read all that were sent. A server registers a stream a moment
    after its first bytes, and listens to its database a moment after its start."""
    run_id, last, enough = uuid4(), 0, asyncio.Event()

    async def send_deltas() -> None:
        nonlocal last
        while not enough.is_set():
            await say(world, session_id, run_id, 1, f"{last + 1}")
            last += 1
            await asyncio.sleep(0.05)

    sending = asyncio.create_task(send_deltas())
    try:
        said = await asyncio.gather(*(reader.delta() for reader in readers))
    finally:
        enough.set()
        await sending
    for reader, told in zip(readers, said, strict=True):
        while told["text"] != f"{last}":
            told = await reader.delta()
