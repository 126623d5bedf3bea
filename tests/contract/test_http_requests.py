"""The HTTP level under every operation: Host, paths, methods, credentials, connections. Over raw sockets."""

import re

import pytest

from quarterdeck.core.actors import CredentialKind
from quarterdeck.core.secrets import mint
from tests.raw_http import RawAnswer, Wire, exchange, request
from tests.world import Server, World

INPUT = b'{"type":"input","text":"x"}'
JSON = "Content-Type: application/json"


def ask(server: Server, method: str, path: str, *headers: str | bytes) -> RawAnswer:
    return exchange(server.port, request(method, path, *headers))


def sized(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


# --- Host ---


@pytest.mark.parametrize(
    "hosts",
    [(), ("Host:",), ("Host:   ",), ("Host: a", "Host: a"), ("Host: a", "Host: b"), ("Host:", "Host: a")],
    ids=["missing", "empty", "blank", "doubled", "two", "empty and one"],
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/api-keys", "/nowhere"])
def test_a_request_without_exactly_one_host_is_400(server: Server, hosts: tuple[str, ...], path: str) -> None:
    answer = exchange(server.port, request("GET", path, *hosts, host=False))
    assert answer.error() == (400, "invalid_request")


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send(b"GET /healthz HTTP/1.0\r\nHost: a\r\n\r\n")
        assert wire.answer().status == 200
        assert wire.is_closed()


# --- paths ---


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/v1",
        "/v1/",
        "/v2/api-keys",
        "/V1/api-keys",
        "/v1/api-keys/",
        "/v1/api-keys%0A",
        "/v1/api-keys%0a%0a",
        "/v1/api-keys%00",
        "/v1/api-keys%20",
        "/v1/api-keys;a=b",
        "/v1//api-keys",
        "//v1/api-keys",
        "/v1/./api-keys",
        "/v1/x/../api-keys",
        "/v1%2Fapi-keys",
        "/v1%2fapi-keys",
        "/%2Fv1/api-keys",
        "/v1/sessions/a%2Fb/events",
        "/v1/sessions//events",
        "/v1/sessions/01890000-0000-7000-8000-000000000000/events/",
        "/healthz/",
        "/healthz%0A",
        "/%FF%FE",
        "/%ED%A0%80",
        "/%E0%80%80",
        "/" + "a" * 10_000,
    ],
)
async def test_unknown_paths_are_404_for_every_caller(world: World, server: Server, path: str) -> None:
    headers = (f"Authorization: Bearer {world.key}", f"Service-Workspace: {world.workspace_id}")
    for answer in (ask(server, "GET", path), ask(server, "GET", path, *headers), ask(server, "POST", path, *headers)):
        assert answer.error() == (404, "not_found")


def test_a_path_is_read_once_decoded(server: Server) -> None:
    assert ask(server, "GET", "/he%61lthz").status == 200
    assert ask(server, "GET", "/he%2561lthz").status == 404
    assert ask(server, "GET", "/healthz?").status == 200
    assert ask(server, "GET", "/healthz?a=%2F%0A").status == 200
    assert ask(server, "GET", "http://quarterdeck.test/healthz").status == 200


# --- methods ---

SESSION_EVENTS = "/v1/sessions/01890000-0000-7000-8000-000000000000/events"


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/api-keys", "GET, HEAD, POST"),
        ("/v1/sessions", "GET, HEAD, POST"),
        ("/v1/runs/not-a-uuid/cancel", "POST"),
        ("/v1/members", "GET, HEAD"),
        ("/v1/skills/not-a-uuid/versions", "GET, HEAD, POST"),
        ("/v1/api-keys/not-a-uuid/revoke", "POST"),
        (SESSION_EVENTS, "GET, HEAD, POST"),
        ("/healthz", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "post"])
def test_wrong_method_is_405_with_allow(server: Server, path: str, allow: str, method: str) -> None:
    answer = ask(server, method, path)
    assert answer.error() == (405, "invalid_request")
    assert answer.header("allow") == allow


def test_get_on_a_path_that_only_takes_posts_is_405(server: Server) -> None:
    for method in ("GET", "HEAD"):
        with Wire(server.port) as wire:
            wire.send(request(method, "/v1/api-keys/not-a-uuid/revoke"))
            answer = wire.answer(to_head=method == "HEAD")
            assert (answer.status, answer.header("allow")) == (405, "POST")


def test_order_of_404_405_and_401(server: Server) -> None:
    assert ask(server, "DELETE", "/v1/api-keys").status == 405
    assert ask(server, "DELETE", "/v1/nothing").status == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/workspace", "/v1/api-keys?limit=0", "/nowhere"])
async def test_head_answers_like_get_without_the_body(world: World, server: Server, path: str) -> None:
    headers = (f"Authorization: Bearer {world.key}", f"Service-Workspace: {world.workspace_id}", "X-Request-Id: one")
    wanted = ask(server, "GET", path, *headers)
    with Wire(server.port) as wire:
        wire.send(request("HEAD", path, *headers))
        answer = wire.answer(to_head=True)
        assert answer.status == wanted.status
        for name in ("content-length", "content-type", "x-request-id"):
            assert answer.header(name) == wanted.header(name)
        # The connection is in step: no byte of a body was sent.
        wire.send(request("GET", "/healthz"))
        assert wire.answer().status == 200


# --- credentials ---


async def test_every_bad_credential_gets_the_same_bytes(world: World, server: Server) -> None:
    key = world.key
    wrong_checksum = key[:-1] + ("0" if key[-1] != "0" else "1")
    # Well formed, with its checksum right, and given to nobody.
    unknown = mint(CredentialKind.API_KEY, "live").text
    headers: dict[str, tuple[str | bytes, ...]] = {
        "none": (),
        "empty": ("Authorization:",),
        "no secret": ("Authorization: Bearer",),
        "two headers": (f"Authorization: Bearer {key}", f"Authorization: Bearer {key}"),
        "basic": ("Authorization: Basic dXNlcjpwYXNz",),
        "other scheme": (f"Authorization: Token {key}",),
        "no scheme": (f"Authorization: {key}",),
        "joined": (f"Authorization: Bearer{key}",),
        "tab": (f"Authorization: Bearer\t{key}",),
        "two secrets": (f"Authorization: Bearer {key} {key}",),
        "list": (f"Authorization: Bearer {key}, Bearer {key}",),
        "quoted": (f'Authorization: Bearer "{key}"',),
        "not ASCII": (b"Authorization: Bearer \xff\xfe\xc3\xa9",),
        "full-width": (f"Authorization: Bearer {key[:-1]}".encode() + "１".encode(),),
        "full-width scheme": ("Authorization: Ｂearer ".encode() + key.encode(),),
        "upper case": (f"Authorization: Bearer {key.upper()}",),
        "wrong checksum": (f"Authorization: Bearer {wrong_checksum}",),
        "cut off": (f"Authorization: Bearer {key[:-1]}",),
        "too long": (f"Authorization: Bearer {key}a",),
        "very long": ("Authorization: Bearer " + "q" * 8_000,),
        "other marker": (f"Authorization: Bearer qds{key[2:]}",),
        "unknown": (f"Authorization: Bearer {unknown}",),
        "revoked": (f"Authorization: Bearer {await world.revoked_key()}",),
        "expired": (f"Authorization: Bearer {await world.expired_key()}",),
        "in the query": (),
    }
    seen = set()
    for name, lines in headers.items():
        path = f"/v1/api-keys?access_token={key}" if name == "in the query" else "/v1/api-keys"
        answer = ask(server, "GET", path, *lines, f"Service-Workspace: {world.workspace_id}")
        assert answer.error() == (401, "unauthorized"), name
        assert answer.header("www-authenticate") == "Bearer", name
        seen.add(answer.body)
    assert len(seen) == 1


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "bEaReR ", "Bearer   "])
async def test_the_scheme_is_read_in_any_case_and_spacing(world: World, server: Server, scheme: str) -> None:
    headers = (f"Authorization: {scheme}{world.key}  ", f"service-workspace: {world.workspace_id}")
    assert ask(server, "GET", "/v1/api-keys", *headers).status == 200


# --- connections ---


async def test_a_connection_serves_on_after_an_error(world: World, server: Server) -> None:
    authorization = f"Authorization: Bearer {world.key}"
    path = f"/v1/sessions/{await world.new_session()}/events"
    bad = b'{"type":"nonsense"}'
    with Wire(server.port) as wire:
        for data, status in (
            (request("GET", "/nowhere"), 404),
            (request("GET", "/healthz", "Host: again"), 400),
            (request("DELETE", "/v1/api-keys"), 405),
            (request("POST", path, JSON, sized(INPUT), body=INPUT), 401),
            (request("POST", path, authorization, JSON, sized(bad), body=bad), 400),
            (request("POST", "/nowhere", sized(INPUT), body=INPUT), 404),
            (request("POST", path, authorization, JSON, sized(INPUT), body=INPUT), 200),
        ):
            wire.send(data)
            assert wire.answer().status == status


@pytest.mark.parametrize("bytes_", [0, 1, 4_096, 100_000, 5_000_000])
def test_unread_body_is_not_parsed_as_the_next_request(server: Server, bytes_: int) -> None:
    """The body is a request itself: read as one, it would be answered."""
    smuggled = request("GET", "/readyz", "X-Request-Id: smuggled")
    body = (smuggled * (bytes_ // len(smuggled) + 1))[:bytes_]
    with Wire(server.port) as wire:
        wire.send_what_it_takes(request("POST", "/v1/sessions", JSON, sized(body), body=body))
        assert wire.answer().error() == (401, "unauthorized")
        wire.send_what_it_takes(request("GET", "/healthz", "X-Request-Id: next", "Connection: close"))
        # The connection is closed if a part of the body was still to come.
        assert set(re.findall(rb"x-request-id: (\S+)", wire.rest())) <= {b"next"}


async def test_pipelined_requests_are_answered_in_order(world: World, server: Server) -> None:
    path = f"/v1/sessions/{await world.new_session()}/events"
    headers = (f"Authorization: Bearer {world.key}", JSON, sized(INPUT))
    with Wire(server.port) as wire:
        wire.send(
            request("POST", path, *headers, "X-Request-Id: r1", body=INPUT)
            + request("GET", "/nowhere", "X-Request-Id: r2")
            + request("POST", path, JSON, sized(INPUT), "X-Request-Id: r3", body=INPUT)
            + request("POST", path, *headers, "X-Request-Id: r4", body=INPUT)
            + request("GET", "/healthz", "X-Request-Id: r5", "Connection: close")
        )
        answers = [wire.answer() for _ in range(5)]
        assert wire.is_closed()
    assert [answer.header("x-request-id") for answer in answers] == ["r1", "r2", "r3", "r4", "r5"]
    assert [answer.status for answer in answers] == [200, 404, 401, 200, 200]
    assert b"new_run" in answers[0].body
    assert b"steered" in answers[3].body


def test_invalid_http_is_refused_and_closed(server: Server) -> None:
    """The parser's own refusal: there is no request yet that could be answered with the envelope."""
    for data in (b"nonsense\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n"):
        with Wire(server.port) as wire:
            wire.send(data)
            assert wire.answer().status == 400
            assert wire.is_closed()
