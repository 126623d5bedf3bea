"""Each of the nine error codes occurs over HTTP and has a section in docs/use/errors.md."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.core.errors import ErrorCode
from tests.world import Server, World, clone_database, drop_database, error_of, serving

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "errors.md").read_text()
PER_MINUTE = 60


@pytest.fixture(scope="module")
def strict(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With limits, and for new clients only."""
    url = clone_database(postgres_url, template)
    settings = {"LIMIT_CREDENTIAL_PER_MINUTE": PER_MINUTE, "LIMIT_CREDENTIAL_BURST": 5, "HTTP_MIN_CLIENT_VERSION": "7"}
    with serving(url, tmp_path_factory.mktemp("strict"), **settings) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def strict_world(strict: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=strict.url, timeout=30) as http:
        yield await World.create(strict.database_url, http)


async def unauthorized(world: World) -> httpx.Response:
    return await world.get("/v1/sessions", key="nonsense")


async def forbidden(world: World) -> httpx.Response:
    return await world.post("/v1/sessions", {}, key=await world.new_key(Permission.WORKSPACE_READ))


async def not_found(world: World) -> httpx.Response:
    return await world.get("/v1/nowhere")


async def invalid_request(world: World) -> httpx.Response:
    return await world.get("/v1/sessions?limit=many")


async def conflict(world: World) -> httpx.Response:
    again = {"Idempotency-Key": "k"}
    await world.post("/v1/skills", {"name": "one"}, headers=again)
    return await world.post("/v1/skills", {"name": "another"}, headers=again)


async def client_outdated(world: World) -> httpx.Response:
    return await world.get("/v1/sessions", headers={"Quarterdeck-Client": "quarterdeck-python/0.1.0"})


async def precondition_failed(world: World) -> httpx.Response:
    path = f"/v1/sessions/{await world.new_session()}"
    return await world.patch(path, {"title": "late"}, headers={"If-Match": '"0"'})


async def too_many_requests(world: World) -> httpx.Response:
    for _ in range(5 * PER_MINUTE):
        answer = await world.get("/v1/sessions")
        if answer.status_code != 200:
            break
    return answer


async def internal(world: World) -> httpx.Response:
    """A table that is gone, for a moment."""
    await world.execute("ALTER TABLE skills RENAME TO mislaid")
    try:
        return await world.post("/v1/skills", {"name": "x"})
    finally:
        await world.execute("ALTER TABLE mislaid RENAME TO skills")


PROVOKED: dict[ErrorCode, tuple[int, Callable[[World], Awaitable[httpx.Response]]]] = {
    ErrorCode.UNAUTHORIZED: (401, unauthorized),
    ErrorCode.FORBIDDEN: (403, forbidden),
    ErrorCode.NOT_FOUND: (404, not_found),
    ErrorCode.INVALID_REQUEST: (400, invalid_request),
    ErrorCode.CONFLICT: (409, conflict),
    ErrorCode.CLIENT_OUTDATED: (426, client_outdated),
    ErrorCode.PRECONDITION_FAILED: (412, precondition_failed),
    ErrorCode.TOO_MANY_REQUESTS: (429, too_many_requests),
    ErrorCode.INTERNAL: (500, internal),
}


def test_every_error_code_has_a_test() -> None:
    assert [*PROVOKED] == [*ErrorCode]
    assert len(PROVOKED) == 9


@pytest.mark.parametrize("code", ErrorCode)
async def test_the_code_is_provoked(strict_world: World, code: ErrorCode) -> None:
    status, provoke = PROVOKED[code]
    assert error_of(await provoke(strict_world)) == (status, code)


@pytest.mark.parametrize("code", ErrorCode)
def test_code_is_documented_with_advice(code: ErrorCode) -> None:
    status, _ = PROVOKED[code]
    heading, _, text = PAGE.partition(f"## {code} (")[2].partition("\n")
    assert str(status) in heading
    paragraph = text.partition("\n## ")[0]
    assert "**Caller:**" in paragraph
    assert "**Operator:**" in paragraph
    assert len(re.findall(r"\w+", paragraph)) > 20
