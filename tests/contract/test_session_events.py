"""GET /v1/sessions/{session_id}/events as JSON pages."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.core.ids import LOWEST_ID
from quarterdeck.events.model import EventType
from tests.sse import reading
from tests.world import Server, World, error_of


async def add_events(world: World, session_id: str, count: int, text: str = "x") -> None:
    """As a worker would: under the session's lock, in one transaction."""
    async with await world.connect() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(session_lock(%s))", (session_id,))
        await connection.cursor().executemany(
            "INSERT INTO session_events (session_id, run_id, type, data)"
            " VALUES (%s, %s, 'message', jsonb_build_object('role', 'assistant', 'text', %s::text))",
            [(session_id, uuid4(), f"{number} {text}") for number in range(count)],
        )


async def page(world: World, session_id: str, query: str = "", **given: Any) -> Any:
    answer = await world.get(f"/v1/sessions/{session_id}/events{query}", **given)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"items", "next_cursor"}
    return answer.json()


async def walk(world: World, session_id: str, limit: int = 200) -> list[Any]:
    found: list[Any] = []
    cursor = 0
    while True:
        each = await page(world, session_id, f"?limit={limit}&after={cursor}")
        found += each["items"]
        if each["next_cursor"] is None:
            return found
        cursor = each["next_cursor"]
        assert cursor == found[-1]["id"]


async def test_an_event_has_exactly_its_fields(world: World) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "hello")).json()["run_id"]
    (event,) = (await page(world, session_id))["items"]
    assert set(event) == {"id", "session_id", "run_id", "type", "created_at", "data"}
    assert (event["session_id"], event["run_id"], event["type"]) == (session_id, run_id, "input.accepted")
    assert isinstance(event["id"], int)
    assert event["created_at"].endswith("Z")
    assert event["data"]["text"] == "hello"
    assert set(event["data"]) == {"input_id", "text", "actor"}


async def test_every_type_can_be_read(world: World) -> None:
    session_id = await world.new_session()
    for type_ in EventType:
        await world.execute(
            "INSERT INTO session_events (session_id, type, data, record) VALUES (%s, %s, '{}', '{\"hidden\": 1}')",
            session_id,
            type_,
        )
    answer = await world.get(f"/v1/sessions/{session_id}/events")
    assert [event["type"] for event in answer.json()["items"]] == list(EventType)
    assert "hidden" not in answer.text


async def test_a_type_that_is_not_known_is_passed_on(world: World, server: Server) -> None:
    """A newer worker beside an older API process: its entries are neither lost nor in the way of the others."""
    session_id = await world.new_session()
    await world.execute(
        "INSERT INTO session_events (session_id, type, data) VALUES (%s, 'run.paused', '{\"why\": 1}')", session_id
    )
    await add_events(world, session_id, 1)
    paused, message = (await page(world, session_id))["items"]
    assert (paused["type"], paused["data"]) == ("run.paused", {"why": 1})
    assert message["type"] == "message"
    async with reading(server.url, session_id, world.key) as reader:
        assert [event["type"] for event in await reader.stored(2)] == ["run.paused", "message"]


@pytest.mark.parametrize("limit", [7, 120, 200])
async def test_pages_contain_each_event_once_in_order(world: World, limit: int) -> None:
    session_id, other = await world.new_session(), await world.new_session()
    for _ in range(4):
        await add_events(world, session_id, 30)
        await add_events(world, other, 3)
    events = await walk(world, session_id, limit)
    assert len(events) == 120
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})
    assert {event["session_id"] for event in events} == {session_id}


async def test_fifty_by_default_oldest_first(world: World) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 51)
    first = await page(world, session_id)
    assert [event["data"]["text"] for event in first["items"]] == [f"{number} x" for number in range(50)]
    assert first["next_cursor"] == first["items"][-1]["id"]
    assert await page(world, session_id, "?after=0") == first
    assert await page(world, session_id, "?after=000") == first


async def test_the_last_events(world: World) -> None:
    session_id = await world.new_session()
    assert (await page(world, session_id, "?last=5"))["items"] == []
    await add_events(world, session_id, 10)
    every = await walk(world, session_id)
    assert await page(world, session_id, "?last=3") == {"items": every[-3:], "next_cursor": None}
    assert (await page(world, session_id, "?last=200"))["items"] == every
    assert await page(world, session_id, "?last=3&limit=2") == {"items": every[-3:-1], "next_cursor": every[-2]["id"]}
    assert (await page(world, session_id, f"?last=3&after={every[-2]['id']}"))["items"] == every[-1:]
    assert (await page(world, session_id, f"?last=3&after={every[0]['id']}"))["items"] == every[-3:]


async def test_last_page_has_no_cursor_and_can_be_continued_later(world: World) -> None:
    session_id = await world.new_session()
    assert await page(world, session_id) == {"items": [], "next_cursor": None}
    await add_events(world, session_id, 10)
    whole = await page(world, session_id, "?limit=10")
    assert (len(whole["items"]), whole["next_cursor"]) == (10, None)
    last = whole["items"][-1]["id"]
    assert await page(world, session_id, f"?after={last}") == {"items": [], "next_cursor": None}
    await world.submit(session_id, "later")
    (later,) = (await page(world, session_id, f"?after={last}"))["items"]
    assert later["data"]["text"] == "later"


async def test_any_number_is_a_position_in_the_log(world: World) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 1)
    assert await page(world, session_id, f"?after={2**63 - 1}") == {"items": [], "next_cursor": None}
    (event,) = (await page(world, session_id, f"?after={(await page(world, session_id))['items'][0]['id'] - 1}"))[
        "items"
    ]
    assert event["data"]["text"] == "0 x"


@pytest.mark.long
async def test_large_events_make_small_pages_and_none_is_lost(world: World) -> None:
    """A page of two hundred inputs of a megabyte would cost two hundred megabytes."""
    session_id = await world.new_session()
    await add_events(world, session_id, 12, "y" * 900_000)
    await add_events(world, session_id, 5)
    first = await world.get(f"/v1/sessions/{session_id}/events?limit=200")
    assert len(first.content) < 6_000_000
    assert first.json()["next_cursor"] is not None
    events = await walk(world, session_id)
    assert [event["data"]["text"].split(" ")[0] for event in events] == [*map(str, range(12)), *map(str, range(5))]


async def test_last_event_id_wins_over_after(world: World) -> None:
    session_id = await world.new_session()
    await add_events(world, session_id, 3)
    first, second, third = (event["id"] for event in (await page(world, session_id))["items"])
    seen = await page(world, session_id, f"?after={first}", headers={"Last-Event-ID": str(second)})
    assert [event["id"] for event in seen["items"]] == [third]


BAD_NUMBERS = ["", "x", "-1", "+1", "1.0", "1_0", "9223372036854775808", "99999999999999999999", "0x1", "null"]


BAD_QUERIES = [
        *(f"?after={bad.replace('+', '%2B')}" for bad in BAD_NUMBERS), "?after=%201", "?after=１",
        f"?after={LOWEST_ID}", "?after=1&after=1", "?limit=0", "?limit=201", "?limit=x", "?limit=", "?limit=５",
        "?limit=1&limit=1", "?last=0", "?last=201", "?last=x", "?after=%ff",
]  # fmt: skip


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_bad_queries_are_400(world: World, accept: str) -> None:
    for query in BAD_QUERIES:
        answer = await world.get(f"/v1/sessions/{uuid4()}/events{query}", headers={"Accept": accept})
        assert error_of(answer) == (400, "invalid_request"), query


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_bad_last_event_ids_are_400(world: World, accept: str) -> None:
    for bad in BAD_NUMBERS:
        headers = {"Accept": accept, "Last-Event-ID": bad}
        answer = await world.get(f"/v1/sessions/{uuid4()}/events", headers=headers)
        assert error_of(answer) == (400, "invalid_request"), bad


async def test_a_doubled_last_event_id_is_400(world: World) -> None:
    headers = httpx.Headers([*world.headers().items(), ("Last-Event-ID", "1"), ("Last-Event-ID", "1")])
    answer = await world.http.get(f"/v1/sessions/{uuid4()}/events", headers=headers)
    assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_permissions_to_read(world: World, server: Server, accept: str) -> None:
    """A stream is refused like a page: before it begins, by the envelope, and with the same bytes."""
    session_id, other = await world.new_session(), await world.new_session()
    path, headers = f"/v1/sessions/{session_id}/events", {"Accept": accept}
    stranger = await World.create(server.database_url, world.http)
    blind = await world.new_key(Permission.SESSION_MANAGE)
    assert error_of(await world.get(path, key=await world.revoked_key(), headers=headers)) == (401, "unauthorized")
    assert error_of(await world.get(path, key=blind, headers=headers)) == (403, "forbidden")
    unseen = [
        await world.get(path, key=stranger.key, headers=headers),
        await world.get(path, key=await world.new_token(other), headers=headers),
        await world.get(f"/v1/sessions/{uuid4()}/events", headers=headers),
        await world.get(path, headers=headers | {"Service-Workspace": str(stranger.workspace_id)}),
    ]
    assert {error_of(answer) for answer in unseen} == {(404, "not_found")}
    assert len({answer.content for answer in unseen}) == 1


async def test_a_token_reads_its_own_session(world: World) -> None:
    session_id = await world.new_session()
    await world.submit(session_id)
    assert len((await page(world, session_id, key=await world.new_token(session_id)))["items"]) == 1


async def test_order_of_checks(world: World) -> None:
    path = f"/v1/sessions/{uuid4()}/events"
    revoked, blind = await world.revoked_key(), await world.new_key(Permission.SESSION_MANAGE)
    assert error_of(await world.get(f"{path}?after=x", key=revoked)) == (401, "unauthorized")
    assert error_of(await world.get(f"{path}?after=x", key=blind)) == (400, "invalid_request")
    assert error_of(await world.get(path, key=blind)) == (404, "not_found")


@pytest.mark.parametrize(
    ("accept", "streamed"),
    [
        (None, False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/event-stream", False),
        ("text/event-stream;q=0.5, application/json", False),
        ("text/event-stream;q=0", False),
        ("image/png", False),
        ("text/event-stream-not", False),
        ("text/event-stream", True),
        ("TEXT/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*", True),
        ("text/event-stream, application/json;q=0.9", True),
        ("application/json;q=0.2 , text/event-stream ; q=0.3", True),
        ("text/*", True),
    ],
)
async def test_accept_decides_the_form(world: World, accept: str | None, streamed: bool) -> None:
    path = f"/v1/sessions/{await world.new_session()}/events"
    headers = world.headers() | ({} if accept is None else {"Accept": accept})
    async with world.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        expected = "text/event-stream; charset=utf-8" if streamed else "application/json"
        assert answer.headers["content-type"] == expected


async def test_head_of_a_stream_ends_at_once(world: World) -> None:
    path = f"/v1/sessions/{await world.new_session()}/events"
    answer = await world.http.head(path, headers=world.headers() | {"Accept": "text/event-stream"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
