"""Event streams with several processes, lost connections and restarts: each event arrives once."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.test_session_events import add_events, walk
from tests.processes import UNKILLED, is_gone, stop, until
from tests.sse import PATIENCE_SECONDS, heard, reading
from tests.world import Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def own(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With its own database, because the test cuts its connections."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("own")) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def own_world(own: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=own.url, timeout=30) as http:
        yield await World.create(own.database_url, http)


@pytest.mark.long
async def test_two_processes_on_one_database(own_world: World, own: Server, tmp_path: Path) -> None:
    """Submitted through one process, read through the other."""
    session_id = await own_world.new_session()
    (tmp_path / "other").mkdir()
    with serving(own.database_url, tmp_path / "other") as other:
        async with reading(other.url, session_id, own_world.key) as reader:
            await heard(own_world, session_id, reader)
            for number in range(20):
                await own_world.submit(session_id, f"{number}")
                (event,) = await reader.stored(1)
                assert event["data"]["text"] == f"{number}"


async def test_events_arrive_without_a_notification(world: World, server: Server) -> None:
    session_id = await world.new_session()
    async with reading(server.url, session_id, world.key) as reader:
        await reader.next()
        for _ in range(3):
            await add_events(world, session_id, 2)
            await reader.stored(2)


@pytest.mark.long
async def test_notifications_arrive_again_after_the_connection_was_lost(own_world: World, own: Server) -> None:
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
            events += await reader.stored(3)
            await heard(own_world, session_id, reader)
    assert events == await walk(own_world, session_id)


@pytest.mark.long
async def test_a_stopping_server_ends_its_streams(own_world: World, own: Server, tmp_path: Path) -> None:
    sessions = [await own_world.new_session() for _ in range(5)]
    with serving(own.database_url, tmp_path, **UNKILLED) as server:
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(reading(server.url, each, own_world.key)) for each in sessions]
            for reader in readers:
                await reader.next()
            stop(server)
            assert all(await asyncio.gather(*(reader.ends(PATIENCE_SECONDS) for reader in readers)))
            assert await until(lambda: is_gone(server))
            assert "Killing" not in server.log.read_text()


@pytest.mark.long
async def test_a_stream_across_restarts_equals_the_pages(own_world: World, own: Server, tmp_path: Path) -> None:
    """A client reads on across five servers, each stopped or killed meanwhile, while events are written."""
    session_id, key, last = await own_world.new_session(), own_world.key, 0
    over = asyncio.Event()

    async def write() -> None:
        while not over.is_set():
            await add_events(own_world, session_id, 2)
            await asyncio.sleep(0.02)

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
    over.set()
    await writing
    written = await walk(own_world, session_id)
    async with reading(own.url, session_id, key, last_event_id=last) as reader:
        found += await reader.stored(len(written) - len(found))
    assert found == written
