"""GET /v1/sessions/{session_id}/events as Server-Sent Events: through processes, restarts, revocations and readers
that do not read."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from quarterdeck.access.model import Permission
from quarterdeck.events.signals import Signal, delta, hints, notify, parse
from tests.contract.test_session_events import add_events, walk
from tests.sse import Sent, reading
from tests.world import Server, World, serving

# The check comes every 0.8 s; the rest is for a busy machine.
PROMPT_SECONDS = 4.0
# A worker that does not end by itself is killed after nine.
BEFORE_THE_KILL_SECONDS = 7.0


@pytest.fixture
def own(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server for the test alone: to be stopped, measured, or told apart from another."""
    with serving(database_url, tmp_path, STREAM_HEARTBEAT_SECONDS="0.5", STREAM_SEND_SECONDS="1") as server:
        yield server


@pytest.fixture
async def own_world(own: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=own.url, timeout=30) as http:
        yield await World.create(own.database_url, http)


def stop(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(server.pid, number)


def seconds_until_gone(server: Server, patience_seconds: float = 12) -> float:
    """Until the port is closed and the process has ended; its parent is this one, so it stays as a zombie."""
    began = time.monotonic()
    while time.monotonic() - began < patience_seconds:
        if Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return time.monotonic() - began
        time.sleep(0.01)
    raise AssertionError("the server did not end")


def worker_pids(server: Server) -> list[int]:
    """The processes that serve: children of the one that was started."""
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def resident_mib(server: Server) -> float:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in worker_pids(server)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1024**2


def connections(server: Server) -> int:
    """Established connections on the server's side, by its open descriptors."""
    ours = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{server.port:04X}") and fields[3] == "01":
            ours.add(f"socket:[{fields[9]}]")
    held = 0
    for pid in worker_pids(server):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                held += os.readlink(descriptor) in ours
            except FileNotFoundError:
                continue
    return held


async def until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def say(world: World, session_id: str, run_id: UUID, attempt: int, text: str) -> None:
    async with await world.connect() as connection:
        await notify(connection, delta(UUID(session_id), run_id, attempt, text))


# --- what is sent ---


async def test_history_then_news_in_order_and_equal_to_the_pages(world: World, server: Server) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 250)
    async with reading(server.url, session_id, world.key) as reader:
        assert reader.response.headers["cache-control"] == "no-store"
        assert reader.response.headers["x-accel-buffering"] == "no"
        assert reader.response.headers["x-request-id"]
        assert await reader.next() == Sent(retry="1000")
        events = await reader.stored(250)
        for number in range(5):
            await world.submit(session_id, f"news {number}")
        events += await reader.stored(5)
    assert events == await walk(world, session_id)
    assert [event["data"]["text"] for event in events[-5:]] == [f"news {number}" for number in range(5)]


async def test_any_text_stays_in_its_line(world: World, server: Server) -> None:
    session_id = await world.new_session()
    text = "a\nb\r\nc\rdata: x\n\nid: 7\n\u2028\u2029\x85\x0b🙂"
    await world.submit(session_id, text)
    headers = world.headers() | {"Accept": "text/event-stream"}
    async with world.http.stream("GET", f"/v1/sessions/{session_id}/events", headers=headers) as answer:
        raw = b""
        async for piece in answer.aiter_raw():
            raw += piece
            if raw.count(b"\n\n") == 2:
                break
    ((event,),) = (await walk(world, session_id),)
    assert event["data"]["text"] == text
    assert raw.split(b"\n\n")[1].count(b"\n") == 2
    # A browser ends a line at a carriage return too.
    assert b"\r" not in raw


@pytest.mark.parametrize("by_header", [True, False])
async def test_resumes_after_any_event(world: World, server: Server, by_header: bool) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 7)
    events = await walk(world, session_id)
    for seen in range(7):
        last = events[seen]["id"]
        # An address from an earlier time does not count against the header.
        given = {"last_event_id": last, "after": 0} if by_header else {"after": last}
        async with reading(server.url, session_id, world.key, **given) as reader:
            assert await reader.stored(6 - seen) == events[seen + 1 :]


async def test_a_token_follows_its_own_session(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, await world.new_token(session_id)) as reader:
        await world.submit(session_id)
        assert len(await reader.stored(1)) == 1


async def test_silence_is_filled(own_world: World, own: Server) -> None:
    async with reading(own.url, await own_world.new_session(), own_world.key) as reader:
        assert await reader.next() == Sent(retry="1000")
        began = time.monotonic()
        for _ in range(3):
            beat = await reader.next()
            assert beat is not None
            assert beat.comment
        assert 1.2 < time.monotonic() - began < 8


async def test_events_far_larger_than_a_piece_arrive_whole(world: World, server: Server) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 6, "z" * 700_000)
    async with reading(server.url, session_id, world.key) as reader:
        assert await reader.stored(6) == await walk(world, session_id)


# --- text while it is being written ---


async def test_deltas_are_live_and_not_stored(world: World, server: Server) -> None:
    session_id, other, run_id = await world.new_session(), await world.new_session(), uuid4()
    async with (
        reading(server.url, session_id, world.key) as first,
        reading(server.url, session_id, world.key) as second,
        reading(server.url, other, world.key) as apart,
    ):
        for reader in (first, second, apart):
            await reader.next()
        await asyncio.sleep(0.1)
        text = 'long "quoted" \n\x00\x1f ünï 🙂 ' * 800 + "a" * 10_000
        await say(world, session_id, run_id, 1, text)
        for reader in (first, second):
            got = ""
            while len(got) < len(text):
                piece = await reader.delta()
                assert set(piece) == {"session_id", "run_id", "attempt", "text"}
                assert (piece["session_id"], piece["run_id"], piece["attempt"]) == (session_id, str(run_id), 1)
                got += piece["text"]
            assert got == text
        # Had the other session's stream got any of it, it would have come before this.
        await world.submit(other)
        message = await apart.next()
        assert message is not None
        assert message.event == "input.accepted"
    assert await walk(world, session_id) == []


async def test_deltas_of_an_older_attempt_are_dropped(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        await asyncio.sleep(0.1)
        for attempt, text in ((1, "a"), (2, "b"), (1, "void"), (2, "c"), (3, "d"), (2, "void")):
            await say(world, session_id, run_id, attempt, text)
        # Attempts are counted for each run.
        await say(world, session_id, uuid4(), 1, "e")
        assert [(await reader.delta())["text"] for _ in range(5)] == ["a", "b", "c", "d", "e"]


async def test_a_start_in_the_log_makes_earlier_attempts_void(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    await world.execute(
        "INSERT INTO session_events (session_id, run_id, type, data)"
        " VALUES (%s, %s, 'run.started', jsonb_build_object('attempt', 5))",
        session_id,
        run_id,
    )
    async with reading(server.url, session_id, world.key) as reader:
        await reader.stored(1)
        await say(world, session_id, run_id, 4, "void")
        await say(world, session_id, run_id, 5, "good")
        assert (await reader.delta())["text"] == "good"


async def test_deltas_come_before_the_message_they_belong_to(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        await asyncio.sleep(0.1)
        async with await world.connect() as connection:
            for step in range(20):
                await notify(connection, delta(UUID(session_id), run_id, 1, f"{step}"))
                async with connection.transaction():
                    await connection.execute(
                        "INSERT INTO session_events (session_id, run_id, type, data)"
                        " VALUES (%s, %s, 'message', jsonb_build_object('text', %s::text))",
                        (session_id, run_id, f"{step}"),
                    )
                    await notify(connection, hints([UUID(session_id)]))
                # As models do, it thinks before it goes on: a look that is under way would already meet the next.
                await asyncio.sleep(0.03)
        seen = [await reader.next() for _ in range(40)]
    texts = [
        (message.event, message.data["text"] if message.id is None else message.data["data"]["text"])
        for message in seen
        if message is not None
    ]
    assert texts == [(event, f"{step}") for step in range(20) for event in ("message.delta", "message")]


async def test_foreign_and_broken_signals_are_ignored(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        await asyncio.sleep(0.1)
        for payload in ("", "nonsense", "{}", '{"s": "x"}', '{"s": ["x"]}', '{"d": {"text": 1}}', "[1]", "9" * 7999):
            await world.execute("SELECT pg_notify('quarterdeck_events', %s)", payload)
        await say(world, session_id, uuid4(), 1, "still here")
        assert (await reader.delta())["text"] == "still here"


def _parsed(payload: str) -> Signal:
    signal_ = parse(payload)
    assert signal_ is not None
    return signal_


def test_signals_fit_into_a_notification() -> None:
    ids = [uuid4() for _ in range(1001)]
    payloads = hints(ids)
    assert all(len(payload.encode()) < 8000 for payload in payloads)
    assert [each for payload in payloads for each in _parsed(payload).s] == ids
    for text in ("\x01" * 10_000, "🙂" * 10_000, '"\\' * 10_000, "a" * 10_000, "x", "\ud83d cut"):
        pieces = delta(ids[0], ids[1], 2**31, text)
        assert all(len(piece.encode()) < 8000 for piece in pieces)
        assert len(set(pieces)) == len(pieces), "PostgreSQL would drop one of two that are equal"
        said = [_parsed(piece).d for piece in pieces]
        assert "".join(each.text for each in said if each) == text.replace("\ud83d", "?")
    assert delta(ids[0], ids[1], 1, "") == []
    assert hints([]) == []


# --- processes and restarts ---


async def test_two_processes_on_one_database(own_world: World, own: Server, tmp_path: Path) -> None:
    """Submitted through one, read through the other, and much sooner than by looking every second."""
    session_id = await own_world.new_session()
    (tmp_path / "other").mkdir()
    with serving(own.database_url, tmp_path / "other") as other:
        async with reading(other.url, session_id, own_world.key) as reader:
            await reader.next()
            await asyncio.sleep(0.2)
            waits = []
            for number in range(20):
                began = time.monotonic()
                await own_world.submit(session_id, f"{number}")
                (event,) = await reader.stored(1)
                waits.append(time.monotonic() - began)
                assert event["data"]["text"] == f"{number}"
            # Without the hint each would wait for the next check.
            assert sorted(waits)[10] < 0.4, waits


async def test_without_any_hint_news_come_within_a_second(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        for _ in range(3):
            await add_events(world, session_id, 2)
            await reader.stored(2, seconds=PROMPT_SECONDS)


async def test_listening_again_after_the_connection_was_lost(own_world: World, own: Server) -> None:
    session_id = await own_world.new_session()
    async with reading(own.url, session_id, own_world.key) as reader:
        await own_world.submit(session_id)
        events = await reader.stored(1)
        for _ in range(3):
            await own_world.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await add_events(own_world, session_id, 3)
            events += await reader.stored(3, seconds=4)
            await asyncio.sleep(0.3)
            await say(own_world, session_id, uuid4(), 1, "live again")
            assert (await reader.delta())["text"] == "live again"
    assert events == await walk(own_world, session_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopping_server_ends_its_streams(own_world: World, own: Server, number: signal.Signals) -> None:
    sessions = [await own_world.new_session() for _ in range(5)]
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(own.url, each, own_world.key)) for each in sessions]
        for reader in readers:
            await reader.next()
        stop(own, number)
        assert all(await asyncio.gather(*(reader.ends(5) for reader in readers)))
        assert await asyncio.to_thread(seconds_until_gone, own) < BEFORE_THE_KILL_SECONDS


async def test_through_restarts_the_stream_equals_the_pages(own_world: World, own: Server, tmp_path: Path) -> None:
    """Read on across five servers, each stopped in the middle, while others keep writing."""
    session_id, key, last = await own_world.new_session(), own_world.key, 0
    done = asyncio.Event()

    async def write() -> None:
        for _ in range(150):
            await add_events(own_world, session_id, 2)
            await asyncio.sleep(0.02)
        done.set()

    writing = asyncio.create_task(write())
    found: list[Any] = []
    for life in range(5):
        folder = tmp_path / f"life{life}"
        folder.mkdir()
        with serving(own.database_url, folder) as server:
            async with reading(server.url, session_id, key, last_event_id=last) as reader:
                found += await reader.stored(25)
                stop(server, signal.SIGKILL if life % 2 else signal.SIGTERM)
                try:
                    while (message := await reader.next()) is not None:
                        found += [message.data] if message.id is not None else []
                except httpx.TransportError:
                    assert life % 2
            last = found[-1]["id"]
    await writing
    async with reading(own.url, session_id, key, last_event_id=last) as reader:
        found += await reader.stored(300 - len(found))
    assert done.is_set()
    assert found == await walk(own_world, session_id)


# --- when it ends ---


async def _revoke_key(world: World, key_id: UUID, session_id: str) -> None:
    assert (await world.post(f"/v1/api-keys/{key_id}/revoke", None)).status_code == 200


async def _expire_key(world: World, key_id: UUID, session_id: str) -> None:
    await world.execute("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = %s", key_id)


async def _take_permission(world: World, key_id: UUID, session_id: str) -> None:
    await world.execute("UPDATE api_keys SET permissions = '{session.manage}' WHERE id = %s", key_id)


async def _delete_session(world: World, key_id: UUID, session_id: str) -> None:
    await world.execute("DELETE FROM sessions WHERE id = %s", session_id)


@pytest.mark.parametrize("change", [_revoke_key, _expire_key, _take_permission, _delete_session])
async def test_a_stream_ends_with_its_right(world: World, server: Server, change: Any) -> None:
    session_id, other = await world.new_session(), await world.new_session()
    key, key_id = await world.new_key_record(tuple(Permission))
    async with reading(server.url, session_id, key) as reader, reading(server.url, other, world.key) as bystander:
        await reader.next()
        await bystander.next()
        assert not await reader.ends(1.2), "nothing has happened yet"
    async with reading(server.url, session_id, key) as reader, reading(server.url, other, world.key) as bystander:
        await reader.next()
        await bystander.next()
        await change(world, key_id, session_id)
        assert await reader.ends(PROMPT_SECONDS)
        await world.submit(other)
        await bystander.stored(1)


@pytest.mark.parametrize("how", ["revoked", "expired", "with its key"])
async def test_a_token_s_stream_ends_with_it(world: World, server: Server, how: str) -> None:
    session_id = await world.new_session()
    maker, maker_id = await world.new_key_record(tuple(Permission))
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=maker)).json()["token"]
    async with reading(server.url, session_id, token) as reader, reading(server.url, session_id, world.key) as other:
        await reader.next()
        if how == "with its key":
            await _revoke_key(world, maker_id, session_id)
        else:
            column = {"revoked": "revoked_at", "expired": "expires_at"}[how]
            await world.execute(
                f"UPDATE session_tokens SET {column} = clock_timestamp() WHERE session_id = %s", session_id
            )
        assert await reader.ends(PROMPT_SECONDS)
        await world.submit(session_id)
        assert len(await other.stored(1)) == 1


async def test_a_reader_that_leaves_is_forgotten(own_world: World, own: Server) -> None:
    session_id = await own_world.new_session()
    await own_world.http.aclose()
    for _ in range(10):
        async with reading(own.url, session_id, own_world.key) as reader:
            await reader.next()
    assert await until(lambda: connections(own) == 0, 10)
    line = f'/v1/sessions/{session_id}/events","status":200'
    assert await until(lambda: own.log.read_text().count(line) == 10, 10)


# --- slow readers ---


def silent_reader(server: Server, session_id: str, key: str) -> socket.socket:
    """Asks and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(
        f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    return connection


async def test_a_reader_that_does_not_read_is_dropped_at_bounded_cost(own_world: World, own: Server) -> None:
    """Sixty megabytes wait for each of twenty readers."""
    session_id = await own_world.new_session()
    for _ in range(4):
        await add_events(own_world, session_id, 20, "w" * 750_000)
    await own_world.get(f"/v1/sessions/{session_id}/events")
    before = resident_mib(own)
    silent = [silent_reader(own, session_id, own_world.key) for _ in range(20)]
    try:
        assert await until(lambda: connections(own) >= 20, 10)
        most = before
        async with reading(own.url, session_id, own_world.key) as reader:
            # One that reads is served meanwhile.
            reading_all = asyncio.create_task(reader.stored(80, seconds=60))
            deadline = time.monotonic() + 8
            while time.monotonic() < deadline and not (reading_all.done() and connections(own) <= 2):
                most = max(most, resident_mib(own))
                await asyncio.sleep(0.02)
            assert len(await reading_all) == 80
        assert await until(lambda: connections(own) <= 2, 10), "they are still connected"
    finally:
        for connection in silent:
            connection.close()
    assert most - before < 150, (before, most)


async def test_a_server_stops_in_time_with_readers_that_do_not_read(database_url: str, tmp_path: Path) -> None:
    with ExitStack() as closing, serving(database_url, tmp_path, STREAM_SEND_SECONDS="60") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
            await add_events(world, session_id, 20, "w" * 750_000)
        for _ in range(3):
            closing.enter_context(silent_reader(server, session_id, world.key))
        await asyncio.sleep(1.5)
        assert connections(server) == 3
        stop(server)
        assert await asyncio.to_thread(seconds_until_gone, server) < BEFORE_THE_KILL_SECONDS


async def test_revocation_ends_a_stream_that_is_stuck(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, STREAM_SEND_SECONDS="60") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
            await add_events(world, session_id, 20, "w" * 750_000)
            key, key_id = await world.new_key_record(tuple(Permission))
            with silent_reader(server, session_id, key):
                await asyncio.sleep(1)
                held = connections(server)
                await _revoke_key(world, key_id, session_id)
                assert await until(lambda: connections(server) == held - 1, PROMPT_SECONDS)


async def test_many_streams_at_once(world: World, server: Server) -> None:
    """Fifty readers of ten sessions: each gets all of its own and nothing else."""
    sessions = [await world.new_session() for _ in range(10)]

    async def follow(session_id: str) -> list[Any]:
        async with reading(server.url, session_id, world.key) as reader:
            return await reader.stored(20, seconds=30)

    following = [asyncio.create_task(follow(session_id)) for session_id in sessions for _ in range(5)]
    await asyncio.gather(*(world.submit(session_id, f"{number}") for number in range(20) for session_id in sessions))
    results = await asyncio.gather(*following)
    for place, session_id in enumerate(sessions):
        events = await walk(world, session_id)
        assert len(events) == 20
        assert results[5 * place : 5 * place + 5] == [events] * 5


async def test_idle_streams_share_their_looking(own_world: World, own: Server) -> None:
    """Thirty streams of thirty sessions, by keys and tokens, cost three statements a check."""
    sessions = [await own_world.new_session() for _ in range(30)]
    async with AsyncExitStack() as stack:
        for place, session_id in enumerate(sessions):
            key = own_world.key if place % 2 else await own_world.new_token(session_id)
            await (await stack.enter_async_context(reading(own.url, session_id, key))).next()
        before = await _transactions(own.database_url)
        await asyncio.sleep(4)
        after = await _transactions(own.database_url)
    # Five checks of three; the rest is this test's own and a little of the server's housekeeping.
    assert after - before < 60


async def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        await asyncio.sleep(1.1)
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])
