"""Pages of listed origins: every header that a browser looks at, and none for anybody else."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import httpx
import pytest

from quarterdeck.api.routes import OPERATIONS
from tests.raw_http import exchange, request
from tests.sse import EventReader
from tests.world import Server, World, clone_database, drop_database, error_of, serving

PAGE = "https://app.example.com"
LOCAL = "http://localhost:5173"
OTHERS = [
    "https://evil.example.com",
    "https://app.example.com.evil.example",
    "https://app.example.com:8443",
    "http://app.example.com",
    "HTTPS://APP.EXAMPLE.COM",
    "https://app.example.com/",
    "null",
    "*",
    "",
]


@pytest.fixture(scope="module")
def open_server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    settings = {
        "HTTP_CORS_ORIGINS": f"{PAGE}, {LOCAL}",
        "LIMIT_CREDENTIAL_PER_MINUTE": 1,
        "LIMIT_CREDENTIAL_BURST": 60,
        "HTTP_JSON_BODY_BYTES": 1000,
    }
    with serving(url, tmp_path_factory.mktemp("open"), **settings) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def page(open_server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=open_server.url, timeout=30, headers={"Origin": PAGE}) as http:
        yield await World.create(open_server.database_url, http)


def listed(header: str) -> set[str]:
    return {name.strip().lower() for name in header.split(",")}


def cors_headers(answer: httpx.Response) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control-")}


async def preflight(world: World, path: str, method: str = "POST", **headers: str) -> httpx.Response:
    given = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,content-type"}
    return await world.http.options(path, headers=given | headers)


@pytest.mark.parametrize("path", sorted({operation.path for operation in OPERATIONS}))
async def test_preflight_of_every_path(page: World, path: str) -> None:
    """Without a credential, for which it is the question whether it may be sent."""
    methods = {operation.method for operation in OPERATIONS if operation.path == path}
    answer = await preflight(page, path.replace("{", "").replace("}", ""))
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    allowed = listed(answer.headers["access-control-allow-methods"])
    assert {method.lower() for method in methods} == allowed - {"head"}
    assert {"authorization", "content-type", "idempotency-key", "if-match", "if-none-match", "last-event-id"} <= listed(
        answer.headers["access-control-allow-headers"]
    )
    assert {"service-workspace", "quarterdeck-client", "x-request-id", "range"} <= listed(
        answer.headers["access-control-allow-headers"]
    )
    assert int(answer.headers["access-control-max-age"]) > 0
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers
    assert "ratelimit" not in answer.headers


async def test_each_listed_origin_is_named_alone(page: World) -> None:
    for origin in (PAGE, LOCAL):
        answer = await preflight(page, "/v1/sessions", Origin=origin)
        assert answer.headers["access-control-allow-origin"] == origin


async def test_answers_can_be_read(page: World) -> None:
    """Good ones and errors alike, with the headers that a client needs."""
    session_id = await page.new_session()
    answers = [
        await page.list_keys(),
        await page.post("/v1/sessions", {}),
        await page.submit(session_id),
        await page.get("/v1/runs/nonsense"),
        await page.get(f"/v1/runs/{uuid4()}"),
        await page.get("/v1/nowhere"),
        await page.list_keys(key="nonsense"),
        await page.post("/v1/sessions", {"title": "x" * 2000}),
        await page.http.put("/v1/sessions"),
        await page.http.get("/healthz"),
        await page.http.get("/openapi.json"),
    ]
    statuses = [200, 201, 200, 400, 404, 404, 401, 413, 405, 200, 200]
    assert [answer.status_code for answer in answers] == statuses
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert listed(answer.headers["access-control-expose-headers"]) >= {
            "content-range",
            "etag",
            "idempotency-replayed",
            "ratelimit",
            "ratelimit-policy",
            "retry-after",
            "x-request-id",
        }
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers


async def test_too_many_can_be_read(page: World) -> None:
    for _ in range(61):
        answer = await page.list_keys()
    assert error_of(answer) == (429, "too_many_requests")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert (await preflight(page, "/v1/api-keys", "GET")).status_code == 204, "asking is not limited"


async def test_a_page_reads_along_with_a_session_token(page: World) -> None:
    session_id = await page.new_session()
    token = await page.new_token(session_id)
    await page.submit(session_id, key=token)
    headers = page.headers(token) | {"Accept": "text/event-stream"}
    async with page.http.stream("GET", f"/v1/sessions/{session_id}/events", headers=headers) as response:
        assert response.headers["access-control-allow-origin"] == PAGE
        assert response.headers["vary"] == "Origin"
        assert [event["type"] for event in await EventReader(response).stored(1)] == ["input.accepted"]


@pytest.mark.parametrize("origin", OTHERS)
async def test_other_origins_get_no_cors_headers(page: World, origin: str) -> None:
    refused = await preflight(page, "/v1/sessions", Origin=origin)
    assert error_of(refused) == (405, "invalid_request")
    assert refused.headers["allow"] == "GET, HEAD, POST"
    answer = await page.http.get("/v1/api-keys", headers=page.headers() | {"Origin": origin})
    assert error_of(answer) == (400, "invalid_request")
    for each in (refused, answer):
        assert cors_headers(each) == set()
        assert each.headers["vary"] == "Origin", "a cache must not give a page what somebody else was answered"


def test_two_origins_are_none(open_server: Server) -> None:
    answer = exchange(open_server.port, request("GET", "/healthz", f"Origin: {PAGE}", f"Origin: {PAGE}"))
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") is None
    # Refused by the edge itself, before any route.
    answer = exchange(open_server.port, request("GET", "/healthz", f"Origin: {PAGE}", host=False))
    assert answer.status == 400
    assert answer.header("access-control-allow-origin") == PAGE


async def test_options_that_is_no_preflight_is_a_wrong_method(page: World) -> None:
    answer = await page.http.options("/v1/sessions")
    assert error_of(answer) == (405, "invalid_request")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert error_of(await preflight(page, "/v1/nowhere")) == (404, "not_found")


async def test_off_by_default(world: World) -> None:
    refused = await preflight(world, "/v1/sessions", Origin=PAGE)
    answer = await world.post("/v1/sessions", {}, headers={"Origin": PAGE})
    assert (refused.status_code, answer.status_code) == (405, 201)
    for each in (refused, answer):
        assert cors_headers(each) == set()
        assert "vary" not in each.headers
