"""Where one request ends and the next begins, however the first is framed. Were a body read as a request, a proxy in
front of us and we would disagree about what was asked. Over raw sockets."""

import re
from typing import NamedTuple

import pytest

from tests.raw_http import Wire, chunk, request
from tests.world import Server, World

JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = request("GET", "/readyz", "X-Request-Id: smuggled")
NEXT = request("GET", "/healthz", "X-Request-Id: next")
BODY = b'{"type":"input","text":"x"}'
LENGTH = f"Content-Length: {len(BODY)}"
PIECES = chunk(BODY[:5]) + chunk(BODY[5:])
END = b"0\r\n\r\n"
SIZE = f"{len(BODY):x}".encode()


class Case(NamedTuple):
    name: str
    headers: list[str | bytes]
    body: bytes
    # Status of the answers before the connection is closed, or before that to NEXT.
    status: int
    stays_open: bool


CASES = [
    Case("length", [LENGTH], BODY, 200, True),
    Case("two equal lengths", [LENGTH, LENGTH], BODY, 200, True),
    Case("length with zeros", [f"Content-Length: 000{len(BODY)}"], BODY, 200, True),
    Case("chunked", [CHUNKED], PIECES + END, 200, True),
    Case("CHUNKED", ["Transfer-Encoding:\t CHUNKED "], PIECES + END, 200, True),
    Case("extensions", [CHUNKED], SIZE + b';a=b;c="d"\r\n' + BODY + b"\r\n" + END, 200, True),
    Case("size with zeros", [CHUNKED], b"0" * 1000 + chunk(BODY) + END, 200, True),
    Case("trailers", [CHUNKED], PIECES + b"0\r\nContent-Length: 5\r\nAuthorization: none\r\n\r\n", 200, True),
    # RFC 9112: the chunks count, and nothing after them.
    Case("length and chunked", [LENGTH, CHUNKED], PIECES + END, 200, False),
    Case("chunked and length", [CHUNKED, LENGTH], PIECES + END, 200, False),
    Case("chunked and a short length", [CHUNKED, "Content-Length: 3"], PIECES + END, 200, False),
    Case("gzip, chunked", ["Transfer-Encoding: gzip, chunked"], PIECES + END, 400, False),
    Case("gzip and chunked", ["Transfer-Encoding: gzip", CHUNKED], PIECES + END, 400, False),
    Case("chunked twice", [CHUNKED, CHUNKED], PIECES + END, 400, False),
    Case("chunked, chunked", ["Transfer-Encoding: chunked, chunked"], PIECES + END, 400, False),
    Case("nothing, chunked", ["Transfer-Encoding: , chunked"], PIECES + END, 400, False),
    # Broken on the way.
    Case("LF alone", [CHUNKED], (PIECES + END).replace(b"\r\n", b"\n"), 400, False),
    Case("LF behind the size", [CHUNKED], PIECES.replace(b"\r\n", b"\n", 1) + END, 400, False),
    Case("CR in an extension", [CHUNKED], SIZE + b";a\rb\r\n" + BODY + b"\r\n" + END, 400, False),
    Case("LF in an extension", [CHUNKED], SIZE + b";a\nb\r\n" + BODY + b"\r\n" + END, 400, False),
    Case("blank before the size", [CHUNKED], b" " + PIECES + END, 400, False),
    Case("size with 0x", [CHUNKED], b"0x" + chunk(BODY) + END, 400, False),
    Case("size with a plus", [CHUNKED], b"+" + chunk(BODY) + END, 400, False),
    Case("size with an underscore", [CHUNKED], SIZE[:1] + b"_" + SIZE[1:] + b"\r\n" + BODY + b"\r\n" + END, 400, False),
    Case("size of 2**64", [CHUNKED], b"1" + b"0" * 16 + b"\r\n" + BODY + b"\r\n" + END, 400, False),
    Case("no line end behind a chunk", [CHUNKED], PIECES[:-2] + END, 400, False),
    Case("no line end behind the last", [CHUNKED], PIECES + b"0\r\nGET", 400, False),
    Case("extension of 20 kB", [CHUNKED], SIZE + b";" + b"a" * 20_000 + b"\r\n" + BODY + b"\r\n" + END, 400, False),
    Case("extension of 5 MB", [CHUNKED], SIZE + b";" + b"a" * 5_000_000, 400, False),
    Case("trailer of 20 kB", [CHUNKED], PIECES + b"0\r\nX-A: " + b"a" * 20_000 + b"\r\n\r\n", 400, False),
    Case("1,000 trailers", [CHUNKED], PIECES + b"0\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n", 400, False),
    Case("trailer without a colon", [CHUNKED], PIECES + b"0\r\nnonsense\r\n\r\n", 400, False),
]


@pytest.fixture
async def head(world: World) -> tuple[str, str, str, str]:
    path = f"/v1/sessions/{await world.new_session()}/events"
    return "POST", path, f"Authorization: Bearer {world.key}", JSON


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_body_ends_at_its_declared_length(
    world: World, server: Server, head: tuple[str, str, str, str], case: Case
) -> None:
    with Wire(server.port) as wire:
        wire.send_what_it_takes(request(*head, *case.headers, body=case.body) + NEXT)
        answer = wire.answer()
        assert answer.status == case.status, answer.body
        if case.status != 200:
            assert answer.error() == (case.status, "invalid_request")
        if case.stays_open:
            assert wire.answer().header("x-request-id") == "next"
        else:
            assert answer.header("connection") == "close"
            assert wire.is_closed(), "what follows is not read"
    session_id = head[1].split("/")[3]
    inputs = await world.fetch("SELECT 1 FROM session_events WHERE session_id = %s", session_id)
    assert bool(inputs) == (case.status == 200), "what was refused is not stored"


# Nobody reads these bodies, and all are answered: by status.
UNREAD = {
    ("POST", "/v1/sessions"): 401,
    ("POST", "/nowhere"): 404,
    ("DELETE", "/healthz"): 405,
    ("OPTIONS", "/healthz"): 405,
    ("TRACE", "/healthz"): 405,
    ("CONNECT", "/healthz"): 405,
    ("CONNECT", "quarterdeck.test:80"): 404,
    ("OPTIONS", "*"): 404,
    ("GET", "/healthz"): 200,
}


@pytest.mark.parametrize("expect", [False, True], ids=["", "expecting"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("line", UNREAD, ids=" ".join)
def test_unread_body_is_never_parsed_as_a_request(
    server: Server, line: tuple[str, str], chunked: bool, expect: bool
) -> None:
    """Sent at once, also by those who asked first and did not wait."""
    framing = CHUNKED if chunked else f"Content-Length: {len(SMUGGLED)}"
    body = chunk(SMUGGLED) + END if chunked else SMUGGLED
    expecting = ["Expect: 100-continue"] if expect else []
    with Wire(server.port) as wire:
        wire.send_what_it_takes(request(*line, framing, *expecting, body=body) + NEXT)
        wire.end_sending()
        received = wire.rest()
    assert f"HTTP/1.1 {UNREAD[line]} ".encode() in received
    assert set(re.findall(rb"x-request-id: (next|smuggled)", received)) <= {b"next"}


def test_head_has_no_body_and_its_own_is_no_request(server: Server) -> None:
    length = f"Content-Length: {len(SMUGGLED)}"
    with Wire(server.port) as wire:
        wire.send(request("HEAD", "/healthz", length, body=SMUGGLED) + NEXT)
        assert wire.answer(to_head=True).status == 200
        assert wire.answer().header("x-request-id") == "next"


def test_an_upgrade_is_not_made(server: Server) -> None:
    """What follows is a request of HTTP/1.1, and not the first bytes of another protocol."""
    websocket = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    cleartext = ["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"]
    for headers in (websocket, cleartext):
        with Wire(server.port) as wire:
            wire.send(request("GET", "/healthz", "Connection: Upgrade, HTTP2-Settings", *headers) + NEXT)
            assert wire.answer().status == 200
            assert wire.answer().header("x-request-id") == "next"


def test_requests_pipelined_behind_a_closing_error_are_not_read(server: Server) -> None:
    for refused in (b"nonsense\r\n\r\n", request("GET", "/healthz", "Connection: close")):
        with Wire(server.port) as wire:
            wire.send_what_it_takes(NEXT + refused + SMUGGLED)
            received = wire.rest()
            assert received.count(b"HTTP/1.1 ") == 2
            assert b"smuggled" not in received


@pytest.mark.long
def test_a_thousand_pipelined_requests_are_answered_in_order(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send(b"".join(request("GET", "/healthz", f"X-Request-Id: r{number}") for number in range(1000)))
        for number in range(1000):
            assert wire.answer().header("x-request-id") == f"r{number}"


@pytest.mark.parametrize(
    "host", ["a b", "a/b", "a@b", "a, b", "http://a", "a:b", "[::1", "::1", "é", "a?b", "a#b", '"a"', "a\\b", "a:1:2"]
)
def test_invalid_host_is_400(server: Server, host: str) -> None:
    with Wire(server.port) as wire:
        wire.send(request("GET", "/healthz", f"Host: {host}", host=False) + NEXT)
        assert wire.answer().error() == (400, "invalid_request")
        assert wire.answer().header("x-request-id") == "next"


@pytest.mark.parametrize("host", ["a", "a:", "a:8700", "127.0.0.1:1", "[::1]", "[::1]:8700", "my_service", "xn--a.b"])
def test_a_host_is_a_name_or_an_address(server: Server, host: str) -> None:
    with Wire(server.port) as wire:
        wire.send(request("GET", "/healthz", f"Host: {host}", host=False))
        assert wire.answer().status == 200
