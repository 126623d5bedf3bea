"""What `qd chat` and `qd watch` do while the server refuses event streams."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from quarterdeck.cli.chat_session import ChatSession
from quarterdeck.cli.conversation import Block, BlockKind
from quarterdeck.client import AsyncClient, TooManyRequests
from quarterdeck.client.models import Event

SESSION_ID, RUN_ID = uuid4(), uuid4()
RETRY_AFTER = 5.0


def event(number: int) -> Event:
    return Event(number, SESSION_ID, RUN_ID, "message", datetime.now(UTC), {"text": f"text {number}"})


class Refusing:
    """A server that refuses the first streams. Each page of the log has one more event."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.streams = 0
        self.last_id = 0

    async def events(self, _: object, *, after: int, follow: bool = True, **__: Any) -> AsyncIterator[Event]:
        if follow:
            self.streams += 1
            if self.streams <= self.refusals:
                raise TooManyRequests(
                    "Too many streams.", code="too_many_requests", status=429, retry_after=RETRY_AFTER
                )
        self.last_id = after + 1
        yield event(self.last_id)
        if follow:
            await asyncio.Event().wait()


async def test_refused_streams_are_asked_for_after_the_pause_and_pages_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    shown: list[Block] = []
    streaming = asyncio.Event()

    async def no_sleep(seconds: float) -> None:
        pauses.append(seconds)

    def show(blocks: Sequence[Block]) -> None:
        shown.extend(blocks)
        if client.streams == 4:
            streaming.set()

    client = Refusing(3)
    session = ChatSession(cast(AsyncClient, client), SESSION_ID, show)
    monkeypatch.setattr("quarterdeck.cli.chat_session.asyncio.sleep", no_sleep)
    following = asyncio.create_task(session.follow())
    await asyncio.wait({following, asyncio.ensure_future(streaming.wait())}, return_when=asyncio.FIRST_COMPLETED)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert len(pauses) == 3
    assert min(pauses) > RETRY_AFTER
    warnings = [block.text for block in shown if block.kind is BlockKind.WARNING]
    assert warnings == ["No live updates. Too many streams."], "said once"
    assert [block.text for block in shown if block.kind is BlockKind.ANSWER] == [
        f"text {number}" for number in (1, 2, 3, 4)
    ]
