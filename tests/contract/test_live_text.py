"""Text that a model is writing: sent only for sessions that somebody reads, and to each reader whole and once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.live_text import (
    LiveRetry,
    ReaderNotice,
    TextPiece,
    live_payloads,
    parse_reader_notice,
    reader_payloads,
)
from quarterdeck.events.log import Notification, ask_who_reads, parse
from quarterdeck.events.model import RetryBody
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.worker.deltas import DeltaSender
from tests.sse import EventReader, heard, reading, say
from tests.workers import SETUP, eventually
from tests.world import Server, World, app_url, serving

INTERVAL_SECONDS = 0.01


@asynccontextmanager
async def _database(server: Server) -> AsyncIterator[Database]:
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _listening(world: World, channel: str, seen: list[str]) -> AsyncIterator[Connection]:
    """Adds the payloads that come."""
    async with await world.connect() as connection:
        await connection.execute(f"LISTEN {channel}")

        async def listen() -> None:
            async for notification in connection.notifies():
                seen.append(notification.payload)

        listening = asyncio.create_task(listen())
        try:
            yield connection
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


@asynccontextmanager
async def _worker(world: World, server: Server, *, asks: bool = True) -> AsyncIterator[DeltaSender]:
    """What a worker does with live text, without runs."""
    async with _database(server) as database, await world.connect() as connection:
        sender = DeltaSender(database, INTERVAL_SECONDS)
        await connection.execute("LISTEN quarterdeck_readers")
        if asks:
            await ask_who_reads(connection)

        async def listen() -> None:
            async for notification in connection.notifies():
                sender.hear(notification.payload)

        listening = asyncio.create_task(listen())
        try:
            yield sender
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await sender.close()


def _lease(world: World, session_id: str, attempt: int = 1, run_id: UUID | None = None) -> Lease:
    return Lease(run_id or uuid4(), UUID(session_id), world.workspace_id, attempt, 0, 0, 0.0, SETUP, SETUP.model)


async def _until_read(sender: DeltaSender, *session_ids: str) -> None:
    async def look() -> bool:
        return all(UUID(session_id) in sender.readers for session_id in session_ids)

    await eventually(look)


async def _text(reader: EventReader, length: int) -> str:
    """Of one text, without a gap and without a part that comes twice."""
    got, number = "", None
    while len(got) < length:
        delta = await reader.delta()
        assert number in (None, delta["text_number"])
        assert delta["offset"] == len(got), delta
        number, got = delta["text_number"], got + delta["text"]
    return got


def _live(payloads: list[str], session_id: str) -> list[TextPiece | LiveRetry]:
    found = [parse(payload) for payload in payloads]
    return [item for each in found if each is not None for item in each.live if item.session_id == UUID(session_id)]


async def test_nothing_is_sent_while_nobody_reads(world: World, server: Server) -> None:
    """A reader who comes later gets the whole text, and then what follows."""
    session_id = await world.new_session()
    sent: list[str] = []
    async with (
        _worker(world, server) as sender,
        _listening(world, "quarterdeck_events", sent),
        sender.text(_lease(world, session_id)) as text,
    ):
        for number in range(20):
            text.add(f"{number:02} ")
            await asyncio.sleep(INTERVAL_SECONDS)
        assert text.pause_seconds() == 0.5
        await asyncio.sleep(10 * INTERVAL_SECONDS)
        assert _live(sent, session_id) == []
        async with reading(server.url, session_id, world.key) as reader:
            beginning = "".join(f"{number:02} " for number in range(20))
            assert await _text(reader, len(beginning)) == beginning
            assert text.pause_seconds() == 0.15
            text.add("the end")
            delta = await reader.delta()
            assert (delta["offset"], delta["text"]) == (len(beginning), "the end")

            async def is_sent() -> bool:
                return any(item.text == "the end" for item in _live(sent, session_id) if isinstance(item, TextPiece))

            await eventually(is_sent)


async def test_each_reader_gets_the_text_once(world: World, server: Server) -> None:
    """Others have come before, with the beginning."""
    session_id = await world.new_session()
    async with (
        _worker(world, server) as sender,
        AsyncExitStack() as stack,
        sender.text(_lease(world, session_id)) as text,
    ):
        readers = []
        for number in range(5):
            readers.append(await stack.enter_async_context(reading(server.url, session_id, world.key)))
            await readers[0].next()
            text.add(f"part {number} ")
            # It has come so far for the first: the others come in the middle.
            await asyncio.sleep(2 * INTERVAL_SECONDS)
        text.add("the end")
        whole = "".join(f"part {number} " for number in range(5)) + "the end"
        for reader in readers[1:]:
            assert await _text(reader, len(whole)) == whole


@pytest.mark.long
async def test_readers_in_two_processes(world: World, server: Server, tmp_path: Path) -> None:
    session_id = await world.new_session()
    with serving(server.database_url, tmp_path) as other:
        async with (
            _worker(world, server) as sender,
            sender.text(_lease(world, session_id)) as text,
            reading(server.url, session_id, world.key) as first,
        ):
            text.add("The beginning, ")
            assert await _text(first, 15) == "The beginning, "
            async with reading(other.url, session_id, world.key) as second:
                assert await _text(second, 15) == "The beginning, "
                text.add("and the end.")
                for reader in (first, second):
                    delta = await reader.delta()
                    assert (delta["offset"], delta["text"]) == (15, "and the end.")


async def test_a_lost_announcement_heals(world: World, server: Server) -> None:
    """The worker begins to listen when the stream was announced, and does not ask."""
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await heard(world, session_id, reader)
        async with _worker(world, server, asks=False) as sender, sender.text(_lease(world, session_id)) as text:
            text.add("all of it")
            assert await _text(reader, 9) == "all of it"


async def test_a_worker_that_begins_to_listen_asks_who_reads(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await heard(world, session_id, reader)
        notices: list[str] = []
        async with _listening(world, "quarterdeck_readers", notices), await world.connect() as connection:
            for _ in range(2):
                notices.clear()
                await ask_who_reads(connection)
                await eventually(lambda: _announces(notices, session_id), 2.5)


async def _announces(payloads: list[str], session_id: str) -> bool:
    found = [parse_reader_notice(payload) for payload in payloads]
    return any(each is not None and UUID(session_id) in each.session_ids for each in found)


async def test_gaps_are_filled_and_doubled_text_is_passed_over(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    notices: list[str] = []

    async def lacking() -> bool:
        found = [parse_reader_notice(payload) for payload in notices]
        return any(each is not None and UUID(session_id) in each.lacking for each in found)

    async with (
        reading(server.url, session_id, world.key) as reader,
        _listening(world, "quarterdeck_readers", notices),
    ):
        await heard(world, session_id, reader)
        for offset, text in ((0, "abc"), (3, "def"), (0, "abcdefg"), (2, "cd"), (7, "h")):
            await say(world, session_id, run_id, 1, text, number=10**6, offset=offset)
        assert [(await reader.delta())["text"] for _ in range(4)] == ["abc", "def", "g", "h"]
        notices.clear()
        await say(world, session_id, run_id, 1, "klm", number=10**6, offset=10)
        await eventually(lacking)
        await say(world, session_id, run_id, 1, "abcdefghijklm", number=10**6)
        delta = await reader.delta()
        assert (delta["offset"], delta["text"]) == (8, "ijklm")
        # An older text of the run, and then the next.
        await say(world, session_id, run_id, 1, "x" * 50, number=10**6 - 1)
        await say(world, session_id, run_id, 1, "next", number=10**6 + 1)
        assert (await reader.delta())["text"] == "next"


async def test_live_text_that_comes_before_the_start_of_its_attempt(world: World, server: Server) -> None:
    """Clients drop live text at `run.started`: a stream asks for it again."""
    session_id, run_id = await world.new_session(), uuid4()
    async with _worker(world, server) as sender, reading(server.url, session_id, world.key) as reader:
        await _until_read(sender, session_id)
        async with sender.text(_lease(world, session_id, 2, run_id)) as text:
            text.add("early")
            assert await _text(reader, 5) == "early"
            await world.execute(
                "INSERT INTO session_events (session_id, run_id, type, data)"
                " VALUES (%s, %s, 'run.started', jsonb_build_object('attempt', 2))",
                session_id,
                run_id,
            )
            await reader.stored(1)
            assert await _text(reader, 5) == "early"


async def test_another_worker_takes_the_run_over(world: World, server: Server) -> None:
    """What the first one still sends is dropped, and the text begins anew."""
    session_id, run_id = await world.new_session(), uuid4()
    async with (
        _worker(world, server) as old,
        _worker(world, server) as new,
        reading(server.url, session_id, world.key) as reader,
    ):
        await _until_read(old, session_id)
        await _until_read(new, session_id)
        async with old.text(_lease(world, session_id, 1, run_id)) as lost:
            lost.add("of the first attempt")
            assert await _text(reader, 20) == "of the first attempt"
            async with new.text(_lease(world, session_id, 2, run_id)) as text:
                text.add("of the second")
                assert await _text(reader, 13) == "of the second"
                lost.add(", too late")
                await asyncio.sleep(5 * INTERVAL_SECONDS)
                text.add(", in time")
                delta = await reader.delta()
                assert (delta["attempt"], delta["offset"], delta["text"]) == (2, 13, ", in time")


async def test_a_repeated_model_request_begins_a_new_text(world: World, server: Server) -> None:
    """Text of the failed request that was not sent yet is dropped. Those who come later see only the new text."""
    session_id = await world.new_session()
    lease = _lease(world, session_id)
    async with _worker(world, server) as sender, reading(server.url, session_id, world.key) as reader:
        await _until_read(sender, session_id)
        async with sender.text(lease) as text:
            text.add("half")
            first = await reader.delta()
            text.add("void")
            text.retry(2, 1.23456, "The provider is overloaded.")
            text.add("good")
            message = await reader.next()
            assert message is not None
            assert (message.id, message.event) == (None, "model.retry")
            told = {"attempt": 2, "retry_in_seconds": 1.235, "reason": "The provider is overloaded."}
            assert message.data == {"session_id": session_id, "run_id": str(lease.run_id)} | told
            second = await reader.delta()
            assert (second["text"], second["offset"]) == ("good", 0)
            assert second["text_number"] > first["text_number"]
            async with reading(server.url, session_id, world.key) as late:
                assert await late.next() is not None
                message = await late.next()
                assert message is not None
                assert (message.event, message.data["text"]) == ("message.delta", "good")


async def test_text_that_could_not_be_sent_is_sent_again(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with _worker(world, server) as sender, reading(server.url, session_id, world.key) as reader:
        await _until_read(sender, session_id)
        database, sender._database = sender._database, Database("host=/nowhere", DatabaseSettings(pool_connections=1))
        async with sender.text(_lease(world, session_id)) as text:
            text.add("first ")
            await eventually(lambda: _is_tried(sender), 20)
            sender._database = database
            text.add("last")
            assert await _text(reader, 10) == "first last"


async def _is_tried(sender: DeltaSender) -> bool:
    return bool(sender._sending)


async def test_text_of_all_runs_travels_together(world: World, server: Server) -> None:
    sessions = [await world.new_session() for _ in range(20)]
    sent: list[str] = []
    async with (
        _worker(world, server) as sender,
        _listening(world, "quarterdeck_events", sent),
        AsyncExitStack() as stack,
    ):
        readers = [await stack.enter_async_context(reading(server.url, each, world.key)) for each in sessions]
        await _until_read(sender, *sessions)
        texts = [await stack.enter_async_context(sender.text(_lease(world, each))) for each in sessions]
        for number, text in enumerate(texts):
            text.add(f"a piece for session {number}")
        for number, reader in enumerate(readers):
            assert (await reader.delta())["text"] == f"a piece for session {number}"

        async def is_one() -> bool:
            return any(all(_live([payload], each) for each in sessions) for payload in sent)

        await eventually(is_one)


async def test_of_a_long_output_the_end_is_kept(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with _worker(world, server) as sender, sender.text(_lease(world, session_id), "call_1") as text:
        for number in range(3_000):
            text.add(f"line {number:05}: some output of a command\n")
        async with reading(server.url, session_id, world.key) as reader:
            got: list[Any] = []
            while not got or not got[-1]["text"].endswith("line 02999: some output of a command\n"):
                message = await reader.next()
                assert message is not None
                if message.event == "tool.delta":
                    got.append(message.data)
    assert got[0]["offset"] > 0
    for before, after in pairwise(got):
        assert after["offset"] == before["offset"] + len(before["text"])
    assert sum(len(each["text"]) for each in got) <= 64 * 1024


def _parsed(payload: str) -> Notification:
    notification = parse(payload)
    assert notification is not None
    return notification


@pytest.mark.parametrize(
    "text", ["\x01" * 10_000, "🙂" * 10_000, '"\\' * 10_000, "a" * 100_000, "x", "\ud83d cut", "ab🙂\n" * 5_000]
)
def test_payloads_fit_into_a_notification(text: str) -> None:
    piece = TextPiece(uuid4(), uuid4(), 2**31, 2**40, 7, text, "c" * 400)
    retries = [LiveRetry(RetryBody(uuid4(), uuid4(), number, 1.5, "\x01" * 10_000)) for number in (2, 3)]
    payloads = live_payloads([retries[0], piece, retries[1]])
    assert all(len(payload.encode()) < 8000 for payload in payloads)
    assert len(set(payloads)) == len(payloads), "PostgreSQL would drop one of two that are equal"
    first, *parts, last = [item for payload in payloads for item in _parsed(payload).live]
    assert isinstance(first, LiveRetry)
    assert isinstance(last, LiveRetry)
    offset = 7
    for part in parts:
        assert isinstance(part, TextPiece)
        assert part.offset == offset
        offset += len(part.text)
    assert "".join(part.text for part in parts if isinstance(part, TextPiece)) == text.replace("\ud83d", "?")


def test_nothing_and_too_long_call_ids_make_no_payload() -> None:
    ids = uuid4(), uuid4()
    assert live_payloads([TextPiece(*ids, 1, 1, 0, ""), TextPiece(*ids, 1, 1, 0, "x", "c" * 9_000)]) == []
    assert reader_payloads([], []) == []


def test_notices_of_readers_fit_into_a_notification() -> None:
    ids = [uuid4() for _ in range(1001)]
    payloads = reader_payloads(ids, ids[:300])
    assert all(len(payload.encode()) < 8000 for payload in payloads)
    notices = [notice for notice in map(parse_reader_notice, payloads) if notice is not None]
    assert [each for notice in notices for each in notice.session_ids] == ids
    assert [each for notice in notices for each in notice.lacking] == ids[:300]
    assert parse_reader_notice("nonsense") is None
    assert parse_reader_notice("{}") == ReaderNotice()
