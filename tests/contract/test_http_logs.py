"""What the server writes about requests: one line each, found by its id, and never a secret."""

import json
import time
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from quarterdeck.core.actors import CredentialKind
from quarterdeck.core.logging import log
from quarterdeck.core.secrets import mint
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http.middleware import Middleware
from tests.raw_http import PATIENCE_SECONDS, Wire, exchange, request
from tests.world import Server, World, bundle

JSON = "Content-Type: application/json"


def lines_of(server: Server, request_id: str) -> list[dict[str, Any]]:
    """Once there is one: it is written after the answer is sent."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := [line for line in server.log.read_text().splitlines() if f'"{request_id}"' in line]):
        assert time.monotonic() < deadline, "no line was written"
        time.sleep(0.02)
    lines = [json.loads(line) for line in found]
    assert {line["request_id"] for line in lines} == {request_id}
    return lines


def settled(server: Server) -> str:
    """The log with the lines about everything that was answered before."""
    request_id = f"last-{uuid4()}"
    exchange(server.port, request("GET", "/healthz", f"X-Request-Id: {request_id}"))
    lines_of(server, request_id)
    return server.log.read_text()


@pytest.mark.parametrize(("logs_successes", "logged"), [(True, [200, 399, 400, 500]), (False, [400, 500])])
async def test_successes_need_not_be_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, logs_successes: bool, logged: list[int]
) -> None:
    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(status_code=int(scope["path"][1:]))(scope, receive, send)

    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level("INFO", log.name)
    app = Middleware(respond, HttpSettings(), logs_successes=logs_successes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as http:
        for status in (200, 399, 400, 500):
            await http.get(f"/{status}")
    assert [record.fields["status"] for record in caplog.records if hasattr(record, "fields")] == logged


# --- X-Request-Id ---


@pytest.mark.parametrize("given", ["a", "A-z_0.9", "x-" * 32, "8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55"])
def test_a_harmless_request_id_is_kept(server: Server, given: str) -> None:
    assert exchange(server.port, request("GET", "/healthz", f"X-Request-Id: {given}")).header("x-request-id") == given


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("X-Request-Id:",),
        ("X-Request-Id: " + "x" * 65,),
        ("X-Request-Id: a b",),
        ("X-Request-Id: a\tb",),
        ('X-Request-Id: a"b',),
        ("X-Request-Id: a,b",),
        (b"X-Request-Id: \xc3\xa9",),
        ("X-Request-Id: a%0Ab",),
        ("X-Request-Id: a", "X-Request-Id: b"),
        (f"X-Request-Id: {mint(CredentialKind.API_KEY, 'live').text}",),
        (f"X-Request-Id: {mint(CredentialKind.SESSION_TOKEN, 'live').text}",),
    ],
)
def test_any_other_is_replaced_by_one_of_ours(server: Server, headers: tuple[str | bytes, ...]) -> None:
    request_id = exchange(server.port, request("GET", "/healthz", *headers)).header("x-request-id")
    assert request_id is not None
    assert UUID(request_id).version == 7


async def test_every_answer_carries_its_id_and_has_one_line(world: World, server: Server) -> None:
    authorization = f"Authorization: Bearer {world.key}"
    session_id, skill_id = await world.new_session(), await world.new_skill()
    events, versions = f"/v1/sessions/{session_id}/events", f"/v1/skills/{skill_id}/versions"
    archive, large = bundle(), b'{"text":"' + b"x" * 1024 * 1024
    cases: list[tuple[int, bytes]] = [
        (200, request("GET", "/healthz")),
        (200, request("GET", "/readyz")),
        (400, request("GET", "/healthz", host=False)),
        (404, request("GET", "/nowhere")),
        (405, request("PUT", "/healthz")),
        (401, request("POST", events)),
        (400, request("POST", events, authorization, JSON, "Content-Length: 1", body=b"{")),
        (400, request("POST", events, authorization, JSON, "Transfer-Encoding: chunked", body=b"x\r\n")),
        (413, request("POST", events, authorization, JSON, f"Content-Length: {len(large)}", body=large)),
        (
            400,
            request(
                "POST", versions, authorization, "Content-Type: application/gzip", "Content-Length: 3", body=b"abc"
            ),
        ),
        (
            201,
            request(
                "POST",
                versions,
                authorization,
                "Content-Type: application/gzip",
                f"Content-Length: {len(archive)}",
                body=archive,
            ),
        ),
    ]
    request_ids = []
    for status, data in cases:
        request_id = f"test-{uuid4()}"
        request_ids.append(request_id)
        head, _, rest = data.partition(b"\r\n")
        answer = exchange(server.port, head + f"\r\nX-Request-Id: {request_id}\r\n".encode() + rest)
        assert (answer.status, answer.header("x-request-id")) == (status, request_id)
        (line,) = lines_of(server, request_id)
        assert line["message"] == "request"
        assert line["status"] == status
        assert line["path"] == head.decode().split(" ")[1]
        assert line["method"] == head.decode().split(" ")[0]
        assert line["ms"] >= 0
    assert [len(lines_of(server, request_id)) for request_id in request_ids] == [1] * len(cases), "still one each"


def test_a_line_stays_a_line_whatever_the_path(server: Server) -> None:
    for path in ("/%0A%7B%22level%22%3A%22error%22%7D", "/%00%1B[31m", "/%ED%A0%80%FF", "/%22%5C", "/" + "a" * 50_000):
        request_id = f"test-{uuid4()}"
        exchange(server.port, request("GET", path, f"X-Request-Id: {request_id}"))
        (line,) = lines_of(server, request_id)
        assert len(line["path"]) <= 200
    assert "Logging error" not in server.log.read_text()


def test_a_client_that_leaves_is_no_error(server: Server) -> None:
    request_id = f"test-{uuid4()}"
    with Wire(server.port) as wire:
        wire.send(request("POST", "/v1/sessions", "Content-Length: 100", f"X-Request-Id: {request_id}"))
    assert {line["level"] for line in lines_of(server, request_id)} == {"info"}


# --- secrets ---


async def test_no_secret_reaches_the_log_wherever_it_was_put(world: World, server: Server) -> None:
    session_id = await world.new_session()
    token = await world.new_token(session_id)
    events = f"/v1/sessions/{session_id}/events"
    for secret in (world.key, token, mint(CredentialKind.API_KEY, "live").text):
        twice = quote(quote(secret.replace("_", "%5F"), safe=""), safe="")
        text = json.dumps({"type": "input", "text": secret, "more": secret}).encode()
        bad = json.dumps({"type": secret, "text": 5, secret: secret}).encode()
        for path, headers, body in (
            (f"/{secret}", (), b""),
            (f"/v1/{secret}/x", (), b""),
            (f"/{'a' * 170}/{secret}", (), b""),
            (f"/{secret.partition('_')[2]}", (), b""),
            (f"/{secret.rpartition('_')[2]}", (), b""),
            (f"/{'a-' * 85}/{secret.rpartition('_')[2]}", (), b""),
            (f"/{secret.replace('_', '%5F')}", (), b""),
            (f"/{twice}", (), b""),
            (f"/v1/sessions/{secret}/events", (f"Authorization: Bearer {secret}", JSON), text),
            (f"/v1/api-keys?access_token={secret}&limit={secret}&after={secret}", (), b""),
            (f"/v1/api-keys?limit={secret}", (f"Authorization: Bearer {secret}",), b""),
            (events, (f"Authorization: Bearer {secret}", JSON), text),
            (events, (f"Authorization: Bearer {secret}", JSON), bad),
            (events, (f"Authorization: {secret}", JSON), text),
            (events, (f"Authorization: Basic {secret}", JSON), text),
            (events, (f"Authorization: Bearer {secret}", f"Authorization: Bearer {secret}"), text),
            (events, (f"Authorization: Bearer {secret}", f"Service-Workspace: {secret}", JSON), text),
            (events, (f"Authorization: Bearer {secret}", f"Content-Type: {secret}"), text),
            (events, (f"Authorization: Bearer {secret}", f"X-Request-Id: {secret}", JSON), text),
            (events, (f"Authorization: Bearer {secret}", f"Idempotency-Key: {secret}", JSON), text),
            (events, (f"Cookie: {secret}", f"{secret}: {secret}", f"User-Agent: {secret}"), text),
        ):
            for method in ("GET", "POST", secret):
                data = request(method, path, *headers, f"Content-Length: {len(body)}", body=body)
                exchange(server.port, data)
    written = settled(server)
    for secret in (world.key, token):
        random = secret.rpartition("_")[2]
        assert random[:15] not in written
        assert random[-15:] not in written
    assert "[redacted]" in written


async def test_a_new_secret_is_in_the_answer_and_not_in_the_log(world: World, server: Server) -> None:
    made = await world.post("/v1/api-keys", {"label": "new", "permissions": ["workspace.read"]})
    token = await world.new_token(await world.new_session())
    written = settled(server)
    assert made.json()["secret"] not in written
    assert token not in written
