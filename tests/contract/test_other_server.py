"""A part of the contract under uvicorn with h11: the app depends on ASGI only, not on Granian."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes import is_gone, stop, until
from tests.raw_http import chunk, exchange, request
from tests.sse import PATIENCE_SECONDS, reading
from tests.world import EVERY_PERMISSION, Server, World, bundle, serving

pytestmark = pytest.mark.long

UVICORN = ["-m", "uvicorn", "tests.uvicorn_app:create_app", "--factory", "--http", "h11", "--log-level", "warning"]


@pytest.fixture(scope="module")
def other(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """On the database of the usual server."""
    with serving(server.database_url, tmp_path_factory.mktemp("uvicorn"), UVICORN) as other:
        yield other


@pytest.fixture
async def there(other: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=other.url, timeout=30) as http:
        yield await World.create(other.database_url, http)


async def test_submit_list_and_push(there: World) -> None:
    session_id, skill_id = await there.new_session(), await there.new_skill()
    assert (await there.submit(session_id)).json()["outcome"] == "new_run"
    assert len((await there.list_keys()).json()["items"]) == 1
    assert (await there.push(skill_id, bundle())).status_code == 201
    download = await there.get(f"/v1/skills/{skill_id}/versions/1/bundle")
    assert download.content == bundle()


async def test_errors_have_the_envelope(there: World, other: Server) -> None:
    path = f"/v1/sessions/{await there.new_session()}/events"
    head = (f"Authorization: Bearer {there.key}", "Content-Type: application/json")
    chunked = "Transfer-Encoding: chunked"
    for sent, error in (
        (request("GET", "/nowhere"), (404, "not_found")),
        (request("PUT", "/healthz"), (405, "invalid_request")),
        (request("POST", path), (401, "unauthorized")),
        (request("GET", "/v1/api-keys%0A"), (404, "not_found")),
        (request("POST", path, *head, "Content-Length: 1", body=b"{"), (400, "invalid_request")),
        (request("POST", path, *head, f"Content-Length: {10**9}"), (413, "invalid_request")),
        (request("POST", path, *head, chunked, body=chunk(b" " * 1024 * 1025)), (413, "invalid_request")),
    ):
        assert exchange(other.port, sent).error() == error


async def test_a_stream_follows_and_ends_with_its_key(there: World, other: Server) -> None:
    session_id = await there.new_session()
    key, key_id = await there.new_key_record(EVERY_PERMISSION)
    async with reading(other.url, session_id, key) as reader:
        await reader.next()
        await there.submit(session_id)
        assert len(await reader.stored(1)) == 1
        assert (await there.post(f"/v1/api-keys/{key_id}/revoke", None)).status_code == 200
        assert await reader.ends(PATIENCE_SECONDS)


async def test_a_shutdown_ends_streams(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, UVICORN) as own:
        async with httpx.AsyncClient(base_url=own.url, timeout=30) as http:
            world = await World.create(database_url, http)
            session_id = await world.new_session()
        async with reading(own.url, session_id, world.key) as reader:
            await reader.next()
            stop(own)
            assert await reader.ends(PATIENCE_SECONDS)
        assert await until(lambda: is_gone(own))
