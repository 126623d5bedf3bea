"""Clients of event streams that leave, do not read, or are many: each is served or given up at bounded cost."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest

from quarterdeck.core.settings import StreamSettings
from tests.contract.test_session_events import add_events
from tests.processes import answered, connections, is_gone, resident_mib, stop, until
from tests.sse import reading
from tests.world import EVERY_PERMISSION, Server, World, clone_database, drop_database, serving

# Longer than a busy machine may keep this test from reading.
SEND_SECONDS = 4


@pytest.fixture(scope="module")
def own(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Not shared: its memory and its statements are measured."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("own"), STREAM_SEND_SECONDS=SEND_SECONDS) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def own_world(own: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=own.url, timeout=30) as http:
        yield await World.create(own.database_url, http)


@pytest.mark.long
async def test_a_client_that_leaves_is_forgotten(own_world: World, own: Server) -> None:
    session_id = await own_world.new_session()
    await own_world.http.aclose()
    for _ in range(10):
        async with reading(own.url, session_id, own_world.key) as reader:
            await reader.next()
    assert await until(lambda: connections(own) == 0)
    assert await until(lambda: answered(own, f"/v1/sessions/{session_id}/events") == 10)


def client_that_does_not_read(server: Server, session_id: str, key: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(
        f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    return connection


@pytest.mark.long
async def test_clients_that_do_not_read_are_given_up_at_bounded_cost(own_world: World, own: Server) -> None:
    """Sixty megabytes wait for each of twenty clients, while one that reads is served."""
    session_id = await own_world.new_session()
    for _ in range(4):
        await add_events(own_world, session_id, 20, "w" * 750_000)
    path = f"/v1/sessions/{session_id}/events"
    await own_world.get(path)
    assert await until(lambda: answered(own, path) == 1)
    before = resident_mib(own)
    silent = [client_that_does_not_read(own, session_id, own_world.key) for _ in range(20)]
    try:
        most = before
        async with reading(own.url, session_id, own_world.key) as reader:
            reading_all = asyncio.create_task(reader.stored(80, seconds=60))

            def is_read() -> bool:
                nonlocal most
                most = max(most, resident_mib(own))
                return reading_all.done()

            assert await until(is_read, 60)
            assert len(await reading_all) == 80
    finally:
        for connection in silent:
            connection.close()
    assert await until(lambda: answered(own, path) == 22)
    assert most - before < 150, (before, most)


@pytest.mark.long
async def test_a_server_stops_while_clients_do_not_read(database_url: str, tmp_path: Path) -> None:
    settings = {"STREAM_SEND_SECONDS": 600, "SERVER_SHUTDOWN_SECONDS": 2}
    with ExitStack() as closing, serving(database_url, tmp_path, **settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
            await add_events(world, session_id, 20, "w" * 750_000)
        for _ in range(3):
            closing.enter_context(client_that_does_not_read(server, session_id, world.key))
        assert await until(lambda: connections(server, stuck=True) == 3)
        stop(server)
        assert await until(lambda: is_gone(server))


@pytest.mark.long
async def test_revocation_ends_a_stream_whose_client_does_not_read(database_url: str, tmp_path: Path) -> None:
    """The application stops sending. Whether the connection is closed is up to the server."""
    with serving(database_url, tmp_path, STREAM_SEND_SECONDS=600) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
            await add_events(world, session_id, 20, "w" * 750_000)
            key, key_id = await world.new_key_record(EVERY_PERMISSION)
            with client_that_does_not_read(server, session_id, key):
                assert await until(lambda: connections(server, stuck=True) == 1)
                assert (await world.post(f"/v1/api-keys/{key_id}/revoke", None)).status_code == 200
                assert await until(lambda: answered(server, f"/v1/sessions/{session_id}/events") == 1)


@pytest.mark.long
async def test_idle_streams_share_their_queries(own_world: World, own: Server) -> None:
    """Thirty streams of thirty sessions, by keys and tokens, cost three statements for each check."""
    sessions = [await own_world.new_session() for _ in range(30)]
    async with AsyncExitStack() as stack:
        for number, session_id in enumerate(sessions):
            key = own_world.key if number % 2 else await own_world.new_token(session_id)
            await (await stack.enter_async_context(reading(own.url, session_id, key))).next()
        before, began = await _transactions(own.database_url), time.monotonic()
        await asyncio.sleep(3)
        after = await _transactions(own.database_url)
        checks = (time.monotonic() - began) / StreamSettings().check_seconds + 1
    # Separate queries would be thirty or more for each check. The server's other work adds a few to the three.
    assert (after - before) / checks < 10


async def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        await asyncio.sleep(1.1)
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])
