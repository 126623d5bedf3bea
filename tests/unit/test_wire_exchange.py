"""What the application is told of a request, in whatever order things come."""

import asyncio
from collections.abc import Awaitable

import pytest
from starlette.types import Message

from quarterdeck.wire.answer import CONTINUE
from quarterdeck.wire.exchange import Exchange
from quarterdeck.wire.head import read_head

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked"
SIZED = HEAD + b"Content-Length: 4"
EXPECT = b"\r\nExpect: 100-continue"
LEFT = {"type": "http.disconnect"}
START = {"type": "http.response.start", "status": 200, "headers": []}


class Recorder:
    """A line that only remembers."""

    client: tuple[str, int] | None = None
    server: tuple[str, int] | None = None
    is_stopping = False

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    async def drained(self) -> None:
        return

    def pause(self) -> None:
        self.is_reading = False

    def resume(self) -> None:
        self.is_reading = True

    def hang_up(self) -> None:
        raise AssertionError("nobody asked for that")


def begun(head: bytes) -> tuple[Exchange, Recorder]:
    line = Recorder()
    return Exchange(line, read_head(head)), line


def piece(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def is_waiting(awaited: Awaitable[Message]) -> bool:
    """Whether nothing comes of it by itself."""
    task = asyncio.ensure_future(awaited)
    for _ in range(5):
        await asyncio.sleep(0)
    waits = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return waits


async def test_a_body_that_has_come_is_whole_although_the_client_has_left() -> None:
    """The end of the chunks and that of the connection came together, while the application did something else."""
    exchange, _ = begun(CHUNKED)
    exchange.feed(b"1\r\nx\r\n")
    assert await exchange.receive() == piece(b"x", more=True)
    exchange.feed(b"0\r\n\r\n")
    exchange.cut_off()
    assert await exchange.receive() == piece(b"", more=False)
    assert await exchange.receive() == LEFT


async def test_a_body_that_was_cut_off_is_not_whole() -> None:
    for head, sent in ((CHUNKED, b"1\r\nx\r\n"), (SIZED, b"x")):
        exchange, _ = begun(head)
        exchange.feed(sent)
        exchange.cut_off(is_last=False)
        assert await exchange.receive() == piece(b"x", more=True)
        assert await exchange.receive() == LEFT
        assert exchange.is_last


async def test_broken_chunks_are_as_good_as_a_client_that_left() -> None:
    exchange, _ = begun(CHUNKED)
    assert exchange.feed(b"nonsense\r\n") == b""
    assert await exchange.receive() == LEFT
    assert exchange.is_last


async def test_who_asks_is_told_to_go_on_when_the_body_is_wanted() -> None:
    for head in (SIZED, CHUNKED):
        exchange, line = begun(head + EXPECT)
        assert await is_waiting(exchange.receive())
        assert line.written == CONTINUE
        assert await is_waiting(exchange.receive())
        assert line.written == CONTINUE, "once"


async def test_who_has_sent_everything_is_not_told_to_go_on() -> None:
    """The application waits for such a client to leave, which is in the middle of its answer."""
    for head, sent in ((SIZED, b"body"), (CHUNKED, b"0\r\n\r\n"), (HEAD[:-2], b"")):
        exchange, line = begun(head + EXPECT)
        if sent:
            exchange.feed(sent)
        assert not (await exchange.receive())["more_body"]
        assert await is_waiting(exchange.receive())
        assert line.written == b""


async def test_nobody_is_told_to_go_on_in_the_middle_of_an_answer() -> None:
    exchange, line = begun(SIZED + EXPECT)
    await exchange.send(START)
    await exchange.send({"type": "http.response.body", "body": b"a", "more_body": True})
    assert await is_waiting(exchange.receive())
    assert CONTINUE not in line.written
    assert b"connection: close" in line.written, "nobody knows whether a body follows"


async def test_what_waits_for_its_reader_is_bounded_and_given_up_with_the_body() -> None:
    exchange, line = begun(CHUNKED)
    exchange.feed(b"fffff\r\n" + b"x" * 300_000)
    assert not line.is_reading
    await exchange.receive()
    assert line.is_reading
    exchange.feed(b"x" * 300_000)
    exchange.give_up_body()
    line.resume()
    exchange.feed(b"x" * 300_000)
    assert line.is_reading, "thrown away"


@pytest.mark.parametrize(("announced", "is_whole"), [(b"5", True), (b"6", False), (b"4", False)])
async def test_an_answer_of_another_length_than_announced_is_not_one(announced: bytes, is_whole: bool) -> None:
    """The connection is ended then: the client would take what follows for the rest, or the rest for what follows."""
    exchange, line = begun(SIZED)
    await exchange.send({**START, "headers": [(b"content-length", announced)]})
    await exchange.send({"type": "http.response.body", "body": b"abc", "more_body": True})
    await exchange.send({"type": "http.response.body", "body": b"de"})
    assert line.written.endswith(b"abcde")
    assert exchange.is_answered == is_whole
