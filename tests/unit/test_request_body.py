"""The lowest rate at which a body must arrive."""

import asyncio
import itertools
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from starlette.types import Message, Receive

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http.request_body import RequestBody

LIMIT_BYTES = 1_000_000
# 200 bytes in each window.
SETTINGS = HttpSettings(body_bytes_per_second=1000, body_rate_seconds=0.2)


def client(pieces: Iterable[tuple[float, bytes]]) -> Receive:
    """Sends each piece after a pause, and then nothing but the end."""
    left = iter(pieces)

    async def receive() -> Message:
        pause_seconds, piece = next(left, (0.0, None))
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    return receive


def body(receive: Receive, settings: HttpSettings = SETTINGS) -> RequestBody:
    return RequestBody(receive, None, LIMIT_BYTES, settings)


async def test_trickling_body_is_refused_though_it_never_stalls() -> None:
    with pytest.raises(ServiceError, match="too slowly"):
        await body(client((0.01, b" ") for _ in range(10_000))).read()


async def test_body_that_trickles_after_a_fast_start_is_refused() -> None:
    pieces = [(0.0, b" " * 100_000), *[(0.01, b" ")] * 10_000]
    with pytest.raises(ServiceError, match="too slowly"):
        await body(client(pieces)).read()


async def test_silent_body_is_refused_at_the_end_of_the_window() -> None:
    with pytest.raises(ServiceError, match="too slowly"):
        await body(client([(3600, b" ")])).read()


async def test_small_body_that_is_complete_within_the_window_has_no_rate() -> None:
    settings = HttpSettings(body_bytes_per_second=LIMIT_BYTES, body_rate_seconds=60)
    assert await body(client([(0.01, b"a"), (0.01, b"b")]), settings).read() == b"ab"


async def test_body_at_the_rate_is_taken_through_many_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at the clock is a second later.
    clock = SimpleNamespace(monotonic=itertools.count(0.0).__next__)
    monkeypatch.setattr("quarterdeck.http.request_body.time", clock)
    settings = HttpSettings(body_seconds=3600, body_bytes_per_second=1000, body_rate_seconds=10)
    assert len(await body(client([(0.0, b" " * 1000)] * 100), settings).read()) == 100_000


async def test_time_before_the_first_read_does_not_count() -> None:
    waiting = body(client([(0.0, b"a"), (0.01, b"b")]))
    await asyncio.sleep(2 * SETTINGS.body_rate_seconds)
    assert await waiting.read() == b"ab"


async def test_time_that_the_server_takes_between_pieces_does_not_count() -> None:
    received = b""
    async for piece in body(client([(0.0, b"a"), (0.0, b"b"), (0.0, b"c")])).stream():
        received += piece
        await asyncio.sleep(SETTINGS.body_rate_seconds)
    assert received == b"abc"


async def test_zero_is_no_rate() -> None:
    settings = HttpSettings(body_bytes_per_second=0, body_rate_seconds=0.01)
    assert len(await body(client([(0.01, b" ")] * 10), settings).read()) == 10
