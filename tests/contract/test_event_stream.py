"""GET /v1/sessions/{session_id}/events as Server-Sent Events: what is sent, as it comes, and until when."""

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission, Role
from quarterdeck.events.live_text import TextPiece, live_payloads
from quarterdeck.events.log import Notification, event_payloads, notify, parse
from tests.contract.test_session_events import add_events, walk
from tests.people import Person
from tests.sse import PATIENCE_SECONDS, Sent, heard, reading, say
from tests.world import Server, World, serving

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


@pytest.mark.long
async def test_heartbeats_are_sent_while_nothing_happens(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, STREAM_HEARTBEAT_SECONDS="0.5") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
        # Before anything is sent: they cannot come sooner.
        began = time.monotonic()
        async with reading(server.url, session_id, world.key) as reader:
            assert await reader.next() == Sent(retry="1000")
            for _ in range(3):
                beat = await reader.next()
                assert beat is not None
                assert beat.comment
            assert time.monotonic() - began > 1.4


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
        await heard(world, session_id, first, second)
        await heard(world, other, apart)
        text = 'long "quoted" \n\x00\x1f ünï 🙂 ' * 800 + "a" * 10_000
        await say(world, session_id, run_id, 1, text)
        for reader in (first, second):
            got = ""
            while len(got) < len(text):
                piece = await reader.delta()
                assert set(piece) == {"session_id", "run_id", "attempt", "text", "text_number", "offset"}
                assert piece["offset"] == len(got)
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
        await heard(world, session_id, reader)
        for attempt, text in ((1, "a"), (2, "b"), (1, "void"), (2, "c"), (3, "d"), (2, "void")):
            await say(world, session_id, run_id, attempt, text)
        # Attempts are counted for each run.
        await say(world, session_id, uuid4(), 1, "e")
        assert [(await reader.delta())["text"] for _ in range(5)] == ["a", "b", "c", "d", "e"]


async def test_run_started_event_invalidates_earlier_attempts(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    await world.execute(
        "INSERT INTO session_events (session_id, run_id, type, data)"
        " VALUES (%s, %s, 'run.started', jsonb_build_object('attempt', 5))",
        session_id,
        run_id,
    )
    async with reading(server.url, session_id, world.key) as reader:
        await reader.stored(1)
        await heard(world, session_id, reader)
        await say(world, session_id, run_id, 4, "void")
        await say(world, session_id, run_id, 5, "good")
        assert (await reader.delta())["text"] == "good"


async def test_deltas_come_before_the_message_they_belong_to(world: World, server: Server) -> None:
    session_id, run_id = await world.new_session(), uuid4()
    async with reading(server.url, session_id, world.key) as reader:
        await heard(world, session_id, reader)
        texts = []
        async with await world.connect() as connection:
            for step in range(20):
                await notify(
                    connection, live_payloads([TextPiece(UUID(session_id), run_id, 1, step + 1, 0, f"{step}")])
                )
                async with connection.transaction():
                    await connection.execute(
                        "INSERT INTO session_events (session_id, run_id, type, data)"
                        " VALUES (%s, %s, 'message', jsonb_build_object('text', %s::text))",
                        (session_id, run_id, f"{step}"),
                    )
                    await notify(connection, event_payloads([UUID(session_id)]))
                # As models do, it thinks before it goes on: a look that is under way would already meet the next.
                for _ in range(2):
                    message = await reader.next()
                    assert message is not None
                    said = message.data if message.id is None else message.data["data"]
                    texts.append((message.event, said["text"]))
    assert texts == [(event, f"{step}") for step in range(20) for event in ("message.delta", "message")]


async def test_unknown_and_malformed_notifications_are_ignored(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await heard(world, session_id, reader)
        for payload in ("", "nonsense", "{}", '{"s": "x"}', '{"s": ["x"]}', '{"d": {"text": 1}}', "[1]", "9" * 7999):
            await world.execute("SELECT pg_notify('quarterdeck_events', %s)", payload)
        await say(world, session_id, uuid4(), 1, "still here")
        assert (await reader.delta())["text"] == "still here"


def _parsed(payload: str) -> Notification:
    notification = parse(payload)
    assert notification is not None
    return notification


def test_payloads_fit_into_a_notification() -> None:
    ids = [uuid4() for _ in range(1001)]
    payloads = event_payloads(ids)
    assert all(len(payload.encode()) < 8000 for payload in payloads)
    assert [each for payload in payloads for each in _parsed(payload).session_ids] == ids
    assert event_payloads([]) == []


@pytest.mark.long
async def test_many_streams_at_once(world: World, server: Server) -> None:
    """Fifty readers of ten sessions: each gets all of its own and nothing else."""
    sessions = [await world.new_session() for _ in range(10)]

    async def follow(session_id: str) -> list[Any]:
        async with reading(server.url, session_id, world.key) as reader:
            return await reader.stored(20, seconds=30)

    following = [asyncio.create_task(follow(session_id)) for session_id in sessions for _ in range(5)]
    await asyncio.gather(*(world.submit(session_id, f"{number}") for number in range(20) for session_id in sessions))
    results = await asyncio.gather(*following)
    for number, session_id in enumerate(sessions):
        events = await walk(world, session_id)
        assert len(events) == 20
        assert results[5 * number : 5 * number + 5] == [events] * 5


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
    async with reading(server.url, session_id, key) as reader:
        assert not await reader.ends(1.2), "nothing has happened yet"
    async with reading(server.url, session_id, key) as reader, reading(server.url, other, world.key) as bystander:
        await reader.next()
        await bystander.next()
        await change(world, key_id, session_id)
        assert await reader.ends(PATIENCE_SECONDS)
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
        assert await reader.ends(PATIENCE_SECONDS)
        await world.submit(session_id)
        assert len(await other.stored(1)) == 1


@pytest.mark.parametrize("how", ["removed", "left", "signed out", "demoted", "everywhere"])
async def test_streams_of_a_person_end_with_their_access(world: World, server: Server, how: str) -> None:
    """That of the browser, and those of the keys and tokens of the person where the membership ends."""
    session_id = await world.new_session()
    ann = await Person.join(world, Role.ADMIN)
    ann_id, device = await ann.id(), str(ann.secret)
    key = (await ann.post("/v1/api-keys", {"label": "x", "permissions": ["workspace.read"]})).json()["secret"]
    token = (await ann.post(f"/v1/sessions/{session_id}/tokens", {})).json()["token"]
    async with (
        reading(server.url, session_id, device) as by_device,
        reading(server.url, session_id, key) as by_key,
        reading(server.url, session_id, token) as by_token,
        reading(server.url, session_id, world.key) as bystander,
    ):
        for reader in (by_device, by_key, by_token, bystander):
            await reader.next()
        match how:
            case "removed":
                assert (await world.delete(f"/v1/members/{ann_id}")).status_code == 204
            case "left":
                assert (await ann.post("/v1/workspace/leave")).status_code == 204
            case "signed out":
                assert (await ann.post("/v1/sign-out")).status_code == 200
            case "everywhere":
                assert (await ann.post("/v1/devices/end-all")).status_code == 204
            case "demoted":
                assert (await world.patch(f"/v1/members/{ann_id}", {"role": "viewer"})).status_code == 200
        ended = {
            "removed": (by_device, by_key, by_token),
            "left": (by_device, by_key, by_token),
            "signed out": (by_device,),
            "everywhere": (by_device,),
            # A viewer may read, and cannot have made a session token.
            "demoted": (by_token,),
        }[how]
        for reader in ended:
            assert await reader.ends(PATIENCE_SECONDS)
        await world.submit(session_id)
        for reader in (by_device, by_key, by_token, bystander):
            if reader not in ended:
                assert len(await reader.stored(1)) == 1
