"""Headers that protect answers in browsers and caches."""

import pytest

from tests.raw_http import RawAnswer, exchange, request
from tests.world import Server, World, bundle


def is_protected(answer: RawAnswer) -> bool:
    assert answer.header("content-type") in ("application/json", None)
    return answer.header("cache-control") == "no-store" and answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/v1/whoami", "/nowhere", "/assets/x/y"])
def test_json_without_a_credential(server: Server, path: str) -> None:
    assert is_protected(exchange(server.port, request("GET", path)))


async def test_json_of_operations(world: World, server: Server) -> None:
    session_id = await world.new_session()
    authorization = f"Authorization: Bearer {world.key}"
    path = f"/v1/sessions/{session_id}"
    shown = exchange(server.port, request("GET", path, authorization))
    assert is_protected(shown)
    answers = [
        exchange(server.port, request("PUT", path, authorization)),
        exchange(server.port, request("GET", f"{path}/nothing", authorization)),
        exchange(server.port, request("POST", "/v1/sessions", authorization, "Content-Length: 0")),
    ]
    assert [answer.status for answer in answers] == [405, 404, 400]
    assert all(map(is_protected, answers))
    unchanged = await world.http.get(path, headers=world.headers() | {"If-None-Match": str(shown.header("etag"))})
    assert (unchanged.status_code, unchanged.headers["cache-control"]) == (304, "no-store")


async def test_downloads_have_their_own(world: World) -> None:
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle())).status_code == 201
    answer = await world.get(f"/v1/skills/{skill_id}/versions/1/bundle")
    assert answer.headers.get_list("cache-control") == ["private, no-cache"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_pages_cannot_be_embedded(world: World, path: str) -> None:
    answer = await world.http.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
