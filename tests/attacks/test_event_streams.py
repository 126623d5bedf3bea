"""One credential opens as many event streams as it can. Others open streams, send inputs and get answers meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.contract.test_session_events import add_events
from tests.processes import connections, until
from tests.raw_http import Wire, exchange, request
from tests.sse import reading
from tests.world import Server, World, clone_database, drop_database, serving

PER_CREDENTIAL, PER_WORKSPACE, CONNECTIONS = 5, 8, 40
SEND_SECONDS = 2
HEALTH = request("GET", "/healthz")


@pytest.fixture(scope="module")
def narrow(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    settings = {
        "STREAM_PER_CREDENTIAL": PER_CREDENTIAL,
        "STREAM_PER_WORKSPACE": PER_WORKSPACE,
        "HTTP_CONNECTIONS": CONNECTIONS,
        "STREAM_SEND_SECONDS": SEND_SECONDS,
    }
    with serving(url, tmp_path_factory.mktemp("narrow"), **settings) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def attacker(narrow: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=narrow.url, timeout=30) as http:
        yield await World.create(narrow.database_url, http)


@pytest.fixture
async def neighbour(narrow: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=narrow.url, timeout=30) as http:
        yield await World.create(narrow.database_url, http)


def stream_headers(credential: str) -> list[str]:
    return [f"Authorization: Bearer {credential}", "Accept: text/event-stream"]


class Stream:
    """An event stream over a socket that is read only as far as the head of the response."""

    def __init__(self, server: Server, session_id: str, credential: str) -> None:
        self.wire = Wire(server.port, receive_buffer_bytes=4096)
        self.wire.send(request("GET", f"/v1/sessions/{session_id}/events", *stream_headers(credential)))
        head = self.wire.read_until(b"\r\n\r\n").partition(b"\r\n\r\n")[0].decode().lower()
        self.status = int(head.split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])

    def refusal(self) -> dict[str, str]:
        error: dict[str, str] = json.loads(self.wire.answer().body)["error"]
        return error


def open_until_refused(server: Server, session_id: str, credential: str, stack: ExitStack) -> tuple[int, Stream]:
    """The number of open streams, and the refused one."""
    for opened in range(2 * CONNECTIONS):
        stream = Stream(server, session_id, credential)
        stack.enter_context(stream.wire)
        if stream.status != 200:
            return opened, stream
    raise AssertionError("there is no limit")


async def assert_served(server: Server, world: World) -> None:
    """A stream, an input and its event, and a health check."""
    assert exchange(server.port, HEALTH).status == 200
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as events:
        assert (await world.submit(session_id, "hello")).status_code == 200
        (accepted,) = await events.stored(1)
        assert accepted["data"]["text"] == "hello"


@pytest.mark.long
async def test_one_token_gets_its_share_and_others_are_served(
    narrow: Server, attacker: World, neighbour: World
) -> None:
    session_id = await attacker.new_session()
    first, second = [await attacker.new_token(session_id) for _ in range(2)]
    with ExitStack() as stack:
        opened, refused = open_until_refused(narrow, session_id, first, stack)
        assert (opened, refused.status) == (PER_CREDENTIAL, 429)
        error = refused.refusal()
        assert error["code"] == "too_many_requests"
        assert f"credential has the maximum of {PER_CREDENTIAL} open event streams" in error["message"]
        assert refused.headers["retry-after"] == "5"
        await assert_served(narrow, neighbour)
        opened, refused = open_until_refused(narrow, session_id, second, stack)
        assert (opened, refused.status) == (PER_WORKSPACE - PER_CREDENTIAL, 429)
        assert f"workspace has the maximum of {PER_WORKSPACE} open event streams" in refused.refusal()["message"]
        await assert_served(narrow, neighbour)
        page = await attacker.get(f"/v1/sessions/{session_id}/events", key=first)
        assert page.status_code == 200, "pages are not affected"
    assert await until(lambda: connections(narrow) <= 2)
    with ExitStack() as stack:
        assert open_until_refused(narrow, session_id, first, stack)[0] == PER_CREDENTIAL, "closed streams are released"


@pytest.mark.long
async def test_a_revoked_credential_releases_its_streams(narrow: Server, attacker: World) -> None:
    """Also those whose clients do not read. Their connections stay open."""
    session_id = await attacker.new_session()
    await add_events(attacker, session_id, 20, "w" * 750_000)
    token = (await attacker.post(f"/v1/sessions/{session_id}/tokens", {})).json()
    other = await attacker.new_token(session_id)
    with ExitStack() as stack:
        assert open_until_refused(narrow, session_id, token["token"], stack)[0] == PER_CREDENTIAL
        path = f"/v1/sessions/{session_id}/tokens/{token['id']}/revoke"
        assert (await attacker.post(path, None)).status_code == 200
        count = 0

        def has_all_slots() -> bool:
            nonlocal count
            stream = Stream(narrow, session_id, other)
            stack.enter_context(stream.wire) if stream.status == 200 else stream.wire.close()
            count += stream.status == 200
            return count == PER_CREDENTIAL

        assert await until(has_all_slots)


@pytest.mark.long
async def test_streams_that_are_not_read_keep_their_slots_until_their_clients_leave(
    narrow: Server, attacker: World, neighbour: World
) -> None:
    """Otherwise one credential could take all connections: they stay open although nothing more is sent."""
    session_id = await attacker.new_session()
    await add_events(attacker, session_id, 20, "w" * 750_000)
    token = await attacker.new_token(session_id)
    with ExitStack() as stack:
        opened, _ = open_until_refused(narrow, session_id, token, stack)
        assert opened == PER_CREDENTIAL
        # Until the streams have been given up.
        await asyncio.sleep(2 * SEND_SECONDS)
        assert open_until_refused(narrow, session_id, token, stack)[0] == 0
        await assert_served(narrow, neighbour)
    assert await until(lambda: connections(narrow) <= 2)
    with ExitStack() as stack:
        assert open_until_refused(narrow, session_id, token, stack)[0] == PER_CREDENTIAL


@pytest.mark.long
async def test_a_stream_that_was_given_up_ends_when_its_client_reads_again(narrow: Server, attacker: World) -> None:
    """A client that was suspended learns that it has to connect again."""
    session_id = await attacker.new_session()
    await add_events(attacker, session_id, 20, "w" * 750_000)
    with Stream(narrow, session_id, attacker.key).wire as wire:
        await asyncio.sleep(2 * SEND_SECONDS)
        received = wire.read_until(b"\r\n0\r\n\r\n")
    assert len(received) < 20 * 750_000


async def test_a_stream_that_ends_in_any_way_releases_its_slot(narrow: Server, attacker: World) -> None:
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    for _ in range(2 * PER_CREDENTIAL):
        with Wire(narrow.port) as wire:
            wire.send(request("HEAD", f"/v1/sessions/{session_id}/events", *stream_headers(token)))
            assert wire.answer(to_head=True).status == 200
        Stream(narrow, session_id, token).wire.close()
        assert await until(lambda: connections(narrow) <= 1)
    with ExitStack() as stack:
        assert open_until_refused(narrow, session_id, token, stack)[0] == PER_CREDENTIAL


async def test_streams_never_take_all_connections(narrow: Server, neighbour: World) -> None:
    """A quarter is kept for requests, whoever opens the streams."""
    with ExitStack() as stack:
        opened, refused = 0, None
        while refused is None:
            async with httpx.AsyncClient(base_url=narrow.url, timeout=30) as http:
                world = await World.create(narrow.database_url, http)
                session_id = await world.new_session()
            more, stream = open_until_refused(narrow, session_id, world.key, stack)
            opened += more
            stream.wire.close() if stream.status == 429 else None
            refused = stream if stream.status == 503 else None
        assert opened == CONNECTIONS * 3 // 4
        assert refused.refusal()["code"] == "internal"
        assert refused.headers["retry-after"] == "1"
        assert exchange(narrow.port, HEALTH).status == 200
        assert (await neighbour.submit(await neighbour.new_session())).status_code == 200
