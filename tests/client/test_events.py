"""Following the events of a session over broken connections and restarts: none is lost or repeated."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.client import (
    ConnectionFailed,
    Delta,
    Event,
    Internal,
    ModelRetry,
    NotFound,
    Unauthorized,
    event_stream,
)
from quarterdeck.client.event_stream import EventFollower, Message, Parser
from tests import world as worlds
from tests.client import faulty_proxy as bad
from tests.client.both_clients import KINDS, Both, opened
from tests.client.faulty_proxy import Exchange, Proxy, refuses
from tests.workers import log_of, working
from tests.world import Server, World, serving

both = pytest.mark.parametrize("kind", KINDS)
# Far longer than needed, for a busy machine.
TIMEOUT_SECONDS = 60.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def read(stream: AsyncIterator[Any], count: int) -> list[Event]:
    """The next `count` stored events."""
    found: list[Event] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(found) < count:
            each = await anext(stream)
            if isinstance(each, Event):
                found.append(each)
    return found


def follow(client: Both, session_id: str, **options: Any) -> "aclosing[Any]":
    return aclosing(client.walk("events", session_id, **options))


@both
@pytest.mark.parametrize("end", ["run.succeeded", "run.failed", "run.cancelled", "action.required"])
async def test_following_until_a_run_ends_or_waits(server: Server, world: World, kind: str, end: str) -> None:
    session_id, run_id, other = await world.new_session(), uuid4(), uuid4()
    for run, type_ in ((other, "run.failed"), (other, "action.required"), (run_id, "message"), (run_id, end)):
        statement = "INSERT INTO session_events (session_id, run_id, type, data) VALUES (%s, %s, %s, '{}')"
        await world.execute(statement, session_id, run, type_)
    async with opened(kind, server.url, world.key) as client, asyncio.timeout(TIMEOUT_SECONDS):
        found = await client.all("events", session_id, until_run=str(run_id))
    assert [event.type for event in found] == ["run.failed", "action.required", "message", end]


async def test_following_a_run_with_its_live_text(database_url: str, tmp_path: Path) -> None:
    """Both clients follow the same run. It has a database of its own: in the common one, the worker would have to do
    first what other tests left."""
    with serving(database_url, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            await follow_a_run(server, await World.create(database_url, http))


async def follow_a_run(server: Server, world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "Tell me about release plans.")
    async with (
        opened("sync", server.url, world.key) as one,
        opened("async", server.url, world.key) as other,
        follow(one, session_id) as first,
        follow(other, session_id) as second,
    ):
        seen: list[list[Event | Delta]] = [[*await read(stream, 1)] for stream in (first, second)]
        with working(server.database_url, server.data_dir, MODEL_DEMO_PAUSE_SECONDS=0.1):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*map(read_to_the_end, (first, second), seen))
    log = [each["id"] for each in await log_of(world, session_id)]
    for found in seen:
        assert [each.id for each in found if isinstance(each, Event)] == log
        deltas = [each for each in found if isinstance(each, Delta)]
        assert deltas
        assert all(str(each.session_id) == session_id for each in deltas)
        for before, after in pairwise(deltas):
            follows = before.text_number == after.text_number
            assert after.offset == (before.offset + len(before.text) if follows else 0)


async def read_to_the_end(stream: AsyncIterator[Any], seen: list[Event | Delta]) -> None:
    while getattr(seen[-1], "type", "") != "run.succeeded":
        seen.append(await anext(stream))


@pytest.mark.long
@both
async def test_following_continues_after_a_server_restart(
    database_url: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(database_url, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
            for n in range(3):
                await world.submit(session_id, str(n))
    # The second server gets the same port.
    monkeypatch.setattr(worlds, "free_port", lambda: server.port)
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
        opened(kind, server.url, world.key) as client,
        follow(client, session_id, after=0) as stream,
    ):
        world.http = http
        with serving(database_url, tmp_path):
            before = await read(stream, 3)
        waiting = asyncio.create_task(read(stream, 2))
        await asyncio.sleep(0.5)
        with serving(database_url, tmp_path):
            await world.submit(session_id, "3")
            await world.submit(session_id, "4")
            after = await waiting
            whole = await log_of(world, session_id)
    assert [each.id for each in before + after] == [each["id"] for each in whole]
    assert [each.data["text"] for each in before + after] == ["0", "1", "2", "3", "4"]


async def cuts_the_stream(exchange: Exchange) -> None:
    """Passes the start of the stream on, up to the middle of a message."""
    reader, writer = await asyncio.open_connection("127.0.0.1", exchange.server.port)
    try:
        writer.write(exchange.request)
        passed = b""
        while passed.count(b"\nid: ") + passed.count(b"\n\nid: ") < 2:
            piece = await reader.read(65536)
            passed += piece.replace(b"retry: 1000", b"retry: 10")
        await exchange.send(passed[: passed.rindex(b"data: ") + 20])
    finally:
        writer.close()


@both
async def test_following_resumes_after_the_last_complete_event(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    for n in range(6):
        await world.submit(session_id, str(n))
    script = [
        cuts_the_stream,
        bad.resets_at_once,
        refuses(503, "Retry-After: 0"),
        refuses(429, "Retry-After: 0", code="too_many_requests"),
        garbled,
        html,
    ]
    expected = [each["id"] for each in await log_of(world, session_id)]
    async with (
        Proxy(server, [*script, streams]).running() as proxy,
        opened(kind, proxy.url, world.key) as client,
        follow(client, session_id, after=expected[0]) as stream,
    ):
        found = await read(stream, len(expected) - 1)
    assert [each.id for each in found] == expected[1:]
    ids = [int(value) for value in proxy.headers("Last-Event-ID")]
    assert ids[0] == expected[0]
    assert ids == sorted(ids)
    assert len(ids) == 7


async def garbled(exchange: Exchange) -> None:
    await exchange.send(b"\x00\xff garbage \r\n\r\n" * 20)


async def html(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>no</html>")


async def streams(exchange: Exchange) -> None:
    """Passes everything on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", exchange.server.port)
    try:
        writer.write(exchange.request)
        while piece := await reader.read(65536):
            await exchange.send(piece)
    finally:
        writer.close()


@both
async def test_a_silent_connection_is_replaced(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "one")

    async def silent(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"retry: 10\n\n")
        await asyncio.sleep(600)

    async with (
        Proxy(server, [silent, silent, *[streams] * 8]).running() as proxy,
        opened(kind, proxy.url, world.key) as client,
        follow(client, session_id, silence_seconds=0.5) as stream,
    ):
        assert [each.data["text"] for each in await read(stream, 1)] == ["one"]
    # A busy machine may cause further timeouts.
    assert len(proxy.requests) >= 3


def message(number: int, **changes: Any) -> bytes:
    body = {
        "id": number,
        "session_id": "0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02",
        "run_id": None,
        "type": "planned.later",
        "created_at": "2026-03-02T18:05:00Z",
        "data": {"n": number},
    }
    return f"id: {number}\nevent: {body['type']}\ndata: {json.dumps(body | changes)}\n\n".encode()


RETRY = (
    b'event: model.retry\ndata: {"session_id": "00000000-0000-0000-0000-000000000001", "run_id": '
    b'"00000000-0000-0000-0000-000000000002", "attempt": 2, "retry_in_seconds": 1.5, "reason": "Busy."}\n\n'
)


@both
async def test_unknown_types_and_repeated_events(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    retries: list[ModelRetry] = []

    async def repeats(exchange: Exchange) -> None:
        parts = [message(7), message(7), message(6), b"event: novelty\ndata: {}\n\n",
                 RETRY, message(8, more="fields"),
                 message(9).replace(b"\n", b"\r\n"), b": still here\n\n", b"data: {}\n", message(10)[:-3]]  # fmt: skip
        await exchange.send(HEAD + b"retry: 10\n\n" + b"".join(parts))

    async def resumes(exchange: Exchange) -> None:
        await exchange.send(HEAD + message(9) + message(10) + message(11))
        await asyncio.sleep(600)

    async with (
        Proxy(server, [repeats, resumes]).running() as proxy,
        opened(kind, proxy.url, world.key) as client,
        follow(client, session_id, after=5, on_retry=retries.append) as stream,
    ):
        found = await read(stream, 5)
    assert retries == [ModelRetry(UUID(int=1), UUID(int=2), 2, 1.5, "Busy.")]
    assert [each.id for each in found] == [7, 8, 9, 10, 11]
    assert {each.type for each in found} == {"planned.later"}
    assert proxy.headers("Last-Event-ID") == ["5", "9"]


@both
async def test_an_event_before_a_broken_one_is_not_lost(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()

    async def breaks(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"retry: 10\n\n" + message(1) + b"id: 2\nevent: x\ndata: {broken\n\n" + message(3))

    async def mends(exchange: Exchange) -> None:
        await exchange.send(HEAD + message(2) + message(3))
        await asyncio.sleep(600)

    async with (
        Proxy(server, [breaks, mends]).running() as proxy,
        opened(kind, proxy.url, world.key) as client,
        follow(client, session_id) as stream,
    ):
        assert [each.id for each in await read(stream, 3)] == [1, 2, 3]
    assert proxy.headers("Last-Event-ID") == ["0", "1"]


@both
async def test_following_ends_after_the_last_reconnect(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()

    async def ends(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"retry: 10\n\n")

    async with opened(kind, server.url, world.key) as direct:
        await direct.call("submit_input", session_id, text="x")
    for behaviour, expected in (
        (ends, ConnectionFailed),
        (bad.resets_at_once, ConnectionFailed),
        (refuses(503), Internal),
    ):
        async with (
            Proxy(server, [ends, *[behaviour] * 3]).running() as proxy,
            opened(kind, proxy.url, world.key) as client,
        ):
            with pytest.raises(expected):
                await client.all("events", session_id, reconnects=3)
        assert len(proxy.requests) == 4


@both
async def test_a_heartbeat_resets_the_number_of_reconnects(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()

    async def lives(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"retry: 10\n\n: still here\n\n")

    async def ends(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"retry: 10\n\n")

    script = [lives, ends, lives, ends, lives, ends, ends]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        with pytest.raises(ConnectionFailed):
            await client.all("events", session_id, reconnects=2)
    assert len(proxy.requests) == 7


@pytest.mark.long
@both
async def test_following_ends_with_the_credential_and_the_session(server: Server, world: World, kind: str) -> None:
    session_id = await world.new_session()
    await world.submit(session_id, "x")
    async with opened(kind, server.url, "qd_test_wrong") as client:
        with pytest.raises(Unauthorized):
            await client.all("events", session_id)
    async with opened(kind, server.url, world.key) as client, follow(client, session_id) as stream:
        await read(stream, 1)
        await world.delete(f"/v1/sessions/{session_id}")
        with pytest.raises(NotFound):
            await read(stream, 10)


STREAM = (
    b"\xef\xbb\xbfretry: 250\r\n\r\n: a comment\rid: 1\revent: one\rdata: a\rdata:  b\r\r"
    b"data\n\nid\ndata: c\n\nretry: x\nid: 3\n\ndata: d\nother: x\n\ndata: cut off\n"
)
MESSAGES = [
    Message("one", b"a\n b", "1"),
    Message("message", b"", None),
    Message("message", b"c", ""),
    Message("message", b"d", None),
]


def test_live_text_is_returned_once_over_several_connections() -> None:
    """Each connection sends a text from its beginning. A text with another number is another one."""
    follower = EventFollower(0, 3)
    session_id, run_id = str(uuid4()), str(uuid4())

    def sent(offset: int, text: str, number: int = 1, call_id: str | None = None) -> list[tuple[int, str]]:
        delta = {"session_id": session_id, "run_id": run_id, "attempt": 1, "text": text, "text_number": number}
        body = json.dumps(delta | {"offset": offset} | ({"call_id": call_id} if call_id else {}))
        kind = "message.delta" if call_id is None else "tool.delta"
        found = [*follower.feed(f"event: {kind}\ndata: {body}\n\n".encode())]
        return [(each.offset, each.text) for each in found if isinstance(each, Delta)]

    assert sent(0, "The begin") == [(0, "The begin")]
    assert sent(0, "one", call_id="c") == [(0, "one")]
    follower.headers()
    assert sent(0, "The beg") == []
    assert sent(7, "inning") == [(9, "ning")]
    assert sent(0, "one two", call_id="c") == [(3, " two")]
    assert sent(0, "The", number=2) == [(0, "The")]
    assert sent(3, " end", number=2) == [(3, " end")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_can_be_split_anywhere(cuts: list[int]) -> None:
    parser = Parser()
    found: list[Message] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(STREAM)], strict=True):
        found += parser.feed(STREAM[start:end])
    assert found == MESSAGES
    assert parser.retry_seconds == 0.25


def test_a_long_line_in_small_chunks_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts bytes, because time depends on the machine."""
    searched = 0

    class Counted:
        def split(self, chunk: bytes) -> list[bytes]:
            nonlocal searched
            searched += len(chunk)
            return re.split(rb"\r\n|\n|\r", chunk)

    monkeypatch.setattr(event_stream, "_LINE_END", Counted())
    line = b"data: " + b"x" * 1_000_000 + b"\n\n"
    parser = Parser()
    found = [message for at in range(0, len(line), 100) for message in parser.feed(line[at : at + 100])]
    assert found == [Message("message", b"x" * 1_000_000, None)]
    assert searched == len(line)


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_any_bytes_are_events_or_a_failed_connection(pieces: list[bytes]) -> None:
    follower = EventFollower(0, 3)
    follower.headers()
    try:
        for piece in pieces:
            list(follower.feed(piece))
    except ConnectionFailed:
        pass
