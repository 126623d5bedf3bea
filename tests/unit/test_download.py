"""A download as the server sees it: when it begins, when it stops, and that what it reads from is closed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.http.downloads import Download

SCOPE: dict[str, Any] = {"type": "http", "method": "GET"}


class Pieces:
    """A hundred pieces. Knows how many were asked for and whether they were put away."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.given = 0
        self.closed = False
        self._fails_at = fails_at

    async def read(self) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(100):
                if number == self._fails_at:
                    raise errors.unavailable()
                self.given += 1
                yield b"piece"
        finally:
            self.closed = True


class Client:
    """The other side: takes what is sent, leaves after so many pieces or stops reading after them."""

    def __init__(self, leaves_after: int | None = None, reads: int | None = None) -> None:
        self.sent: list[Any] = []
        self._leaves_after = leaves_after
        self._reads = reads
        self._leaving = asyncio.Event()

    async def receive(self) -> Any:
        await self._leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        pieces = sum(message["type"] == "http.response.body" for message in self.sent)
        if self._leaves_after is not None and pieces >= self._leaves_after:
            self._leaving.set()
        if self._reads is not None and pieces > self._reads:
            await asyncio.Event().wait()
        # As a server does: others get their turn.
        await asyncio.sleep(0)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent if message["type"] == "http.response.body")


def download(pieces: Pieces, *, send_seconds: float = 30.0, stopping: asyncio.Event | None = None) -> Download:
    return Download(pieces.read(), 200, {"Content-Length": "500"}, send_seconds, stopping or asyncio.Event())


async def test_all_pieces_and_an_end() -> None:
    pieces, client = Pieces(), Client()
    await download(pieces)(SCOPE, client.receive, client.send)
    assert client.body == b"piece" * 100
    assert [message.get("more_body") for message in client.sent].count(False) == 1
    assert pieces.closed


async def test_head_reads_nothing() -> None:
    pieces, client = Pieces(), Client()
    await download(pieces)(SCOPE | {"method": "HEAD"}, client.receive, client.send)
    assert (len(client.sent), client.body, pieces.given) == (2, b"", 0)


async def test_early_failure_is_an_error_response() -> None:
    pieces, client = Pieces(fails_at=0), Client()
    with pytest.raises(ServiceError):
        await download(pieces)(SCOPE, client.receive, client.send)
    assert client.sent == []
    assert pieces.closed


async def test_late_failure_leaves_the_response_incomplete() -> None:
    pieces, client = Pieces(fails_at=50), Client()
    with pytest.raises(ServiceError):
        await download(pieces)(SCOPE, client.receive, client.send)
    assert client.body == b"piece" * 50
    assert all(message.get("more_body", True) for message in client.sent)
    assert pieces.closed


async def test_disconnected_client_is_not_sent_the_rest() -> None:
    pieces, client = Pieces(), Client(leaves_after=10)
    await download(pieces)(SCOPE, client.receive, client.send)
    assert 10 <= pieces.given < 50
    assert pieces.closed


async def test_client_that_does_not_read_times_out() -> None:
    pieces, client = Pieces(), Client(reads=10)
    await download(pieces, send_seconds=0.5)(SCOPE, client.receive, client.send)
    assert pieces.given == 11
    assert pieces.closed


@pytest.mark.parametrize("already", [True, False])
async def test_shutdown_shortens_the_timeout_of_a_silent_reader(already: bool) -> None:
    pieces, client, stopping = Pieces(), Client(reads=10), asyncio.Event()
    if already:
        stopping.set()
    answer = download(pieces, send_seconds=3600, stopping=stopping)
    sending = asyncio.create_task(answer(SCOPE, client.receive, client.send))
    await asyncio.sleep(0.1)
    stopping.set()
    async with asyncio.timeout(30):
        await sending
    assert pieces.closed
