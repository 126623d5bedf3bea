"""Bodies as they travel: framing, size and time, whatever the client does. Over raw sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.raw_http import PATIENCE_SECONDS, Wire, chunk, exchange, request
from tests.world import Server, World, bundle, serving

INPUT = b'{"type":"input","text":"x"}'
JSON = "Content-Type: application/json"
GZIP = "Content-Type: application/gzip"
CHUNKED = "Transfer-Encoding: chunked"
EXPECT = "Expect: 100-continue"
JSON_LIMIT_BYTES = 1024 * 1024
SMALL_UPLOAD_BYTES = 200_000
FOR_EVER = 3600


@pytest.fixture(scope="module")
def stalling(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Gives up soon on a body of which nothing comes. On the same database, like the next two."""
    with serving(server.database_url, tmp_path_factory.mktemp("stalling"), HTTP_BODY_STALL_SECONDS=0.5) as stalling:
        yield stalling


@pytest.fixture(scope="module")
def hurried(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Gives up soon on a body that is not there as a whole, and on nothing else."""
    settings = {"HTTP_BODY_SECONDS": 1.2, "HTTP_BODY_STALL_SECONDS": FOR_EVER}
    with serving(server.database_url, tmp_path_factory.mktemp("hurried"), **settings) as hurried:
        yield hurried


@pytest.fixture(scope="module")
def narrow(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Takes little, and all the time that it is given."""
    settings = {
        "HTTP_BODY_SECONDS": FOR_EVER,
        "HTTP_BODY_STALL_SECONDS": FOR_EVER,
        "HTTP_BODY_BYTES_PER_SECOND": 0,
        "HTTP_DRAIN_SECONDS": 1,
        "BUNDLE_REQUEST_BYTES": SMALL_UPLOAD_BYTES,
    }
    with serving(server.database_url, tmp_path_factory.mktemp("narrow"), **settings) as narrow:
        yield narrow


class Target:
    """An operation with a JSON body and one with an archive, and who may call them."""

    def __init__(self, key: str, events: str, versions: str) -> None:
        self.events = ("POST", events, f"Authorization: Bearer {key}", JSON)
        self.versions = ("POST", versions, f"Authorization: Bearer {key}", GZIP)


@pytest.fixture
async def target(world: World) -> Target:
    session_id, skill_id = await world.new_session(), await world.new_skill()
    return Target(world.key, f"/v1/sessions/{session_id}/events", f"/v1/skills/{skill_id}/versions")


async def count_inputs(world: World) -> int:
    ((count,),) = await world.fetch(
        "SELECT count(*) FROM session_events e JOIN sessions s ON s.id = e.session_id WHERE s.workspace_id = %s",
        world.workspace_id,
    )
    assert isinstance(count, int)
    return count


# --- framing ---


@pytest.mark.parametrize("sizes", [[27], [1] * 27, [5, 22], [26, 1]])
async def test_a_chunked_body_is_read(target: Target, server: Server, sizes: list[int]) -> None:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(chunk(INPUT[start : start + size]))
        start += size
    with Wire(server.port) as wire:
        wire.send(request(*target.events, CHUNKED, body=b"".join(pieces) + b"0\r\n\r\n"))
        assert wire.answer().status == 200
        wire.send(request("GET", "/healthz"))
        assert wire.answer().status == 200


async def test_a_chunked_archive_is_read(target: Target, server: Server) -> None:
    archive = bundle()
    body = chunk(archive[:10]) + chunk(archive[10:]) + b"0\r\n\r\n"
    assert exchange(server.port, request(*target.versions, CHUNKED, body=body)).status == 201


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n" + INPUT + b"\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
        b"\r\n\r\n",
        b"ffffffffffffffffff\r\n" + INPUT,
        chunk(INPUT)[:-2] + b"xx0\r\n\r\n",
        b"5\r\n" + INPUT + b"\r\n0\r\n\r\n",
    ],
    ids=["no number", "negative", "empty", "too large a number", "no line end", "longer than said"],
)
async def test_broken_chunking_is_400_and_closes(world: World, target: Target, server: Server, body: bytes) -> None:
    for operation in (target.events, target.versions):
        with Wire(server.port) as wire:
            wire.send(request(*operation, CHUNKED, body=body))
            answer = wire.answer()
            assert answer.error() == (400, "invalid_request")
            assert answer.header("connection") == "close"
            assert wire.is_closed()
    assert await count_inputs(world) == 0


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: 100", INPUT),
        ("Content-Length: 28", INPUT),
        ("Content-Length: 27", b""),
        (CHUNKED, chunk(INPUT)),
        (CHUNKED, chunk(INPUT)[:10]),
        (CHUNKED, chunk(INPUT) + b"0\r\n"),
        (CHUNKED, b""),
    ],
)
async def test_a_body_that_ends_early_is_400_and_stores_nothing(
    world: World, target: Target, server: Server, header: str, body: bytes
) -> None:
    """The input is complete in most of these; what was announced is not."""
    for operation in (target.events, target.versions):
        with Wire(server.port) as wire:
            wire.send(request(*operation, header, body=body))
            wire.end_sending()
            assert wire.answer().error() == (400, "invalid_request")
            assert wire.is_closed()
    assert await count_inputs(world) == 0


async def test_a_client_that_leaves_in_the_middle_stores_nothing(world: World, target: Target, server: Server) -> None:
    for operation in (target.events, target.versions):
        with Wire(server.port) as wire:
            wire.send(request(*operation, "Content-Length: 100", body=INPUT))
    assert exchange(server.port, request("GET", "/healthz")).status == 200
    assert await count_inputs(world) == 0


async def test_a_body_where_none_is_wanted_is_ignored(world: World, server: Server) -> None:
    headers = (f"Authorization: Bearer {world.key}", f"Service-Workspace: {world.workspace_id}")
    with Wire(server.port) as wire:
        for _ in range(2):
            wire.send(request("GET", "/v1/api-keys", *headers, "Content-Length: 27", body=INPUT))
            assert wire.answer().status == 200


# --- size ---


@pytest.mark.long
async def test_a_length_over_the_limit_is_413_before_any_body(target: Target, narrow: Server) -> None:
    """The client sends no body at all and is answered, told that the connection ends."""
    lengths = (
        (target.events, JSON_LIMIT_BYTES + 1),
        (target.versions, SMALL_UPLOAD_BYTES + 1),
        (target.events, 10**18),
    )
    for operation, length in lengths:
        with Wire(narrow.port) as wire:
            wire.send(request(*operation, f"Content-Length: {length}"))
            answer = wire.answer()
            assert answer.error() == (413, "invalid_request")
            assert answer.header("connection") == "close"
            assert wire.is_closed()


async def test_the_limit_itself_is_allowed(target: Target, server: Server) -> None:
    frame = len(b'{"type":"input","text":""}')
    body = b'{"type":"input","text":"' + b"a" * (JSON_LIMIT_BYTES - frame) + b'"}'
    assert len(body) == JSON_LIMIT_BYTES
    assert exchange(server.port, request(*target.events, f"Content-Length: {len(body)}", body=body)).status == 200
    body += b" "
    chunked = request(*target.events, CHUNKED, body=chunk(body) + b"0\r\n\r\n")
    assert exchange(server.port, chunked).error() == (413, "invalid_request")


async def test_a_chunked_body_is_413_at_the_first_byte_too_many(target: Target, narrow: Server) -> None:
    """Answered while the rest is still to come."""
    for operation, limit in ((target.events, JSON_LIMIT_BYTES), (target.versions, SMALL_UPLOAD_BYTES)):
        with Wire(narrow.port) as wire:
            wire.send(request(*operation, CHUNKED, body=chunk(b" " * limit)))
            assert wire.is_silent(0.2), "the limit itself is not yet too much"
            wire.send(chunk(b" "))
            answer = wire.answer()
            assert answer.error() == (413, "invalid_request")
            assert answer.header("connection") == "close"
            assert wire.is_closed()


async def test_a_client_that_sends_everything_before_it_listens_gets_its_413(target: Target, server: Server) -> None:
    """The connection is closed while the client still sends; the response is there to be read."""
    length = 40_000_000
    for operation in (target.events, target.versions):
        with Wire(server.port) as wire:
            wire.send_what_it_takes(request(*operation, f"Content-Length: {length}", body=b"x" * length))
            assert wire.answer().error() == (413, "invalid_request")


def send_for_ever(wire: Wire, bytes_: int, pause_seconds: float) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        wire.send(chunk(b" " * bytes_))
        time.sleep(pause_seconds)


@pytest.mark.long
@pytest.mark.parametrize("pause_seconds", [0.0, 0.1])
async def test_draining_after_an_early_response_is_limited(
    target: Target, narrow: Server, pause_seconds: float
) -> None:
    """Neither a flood nor a trickle keeps a connection that was answered already."""
    unknown = ("POST", "/nowhere")
    for operation, status in ((target.events, 413), (unknown, 404), (target.versions[:2], 401)):
        with Wire(narrow.port) as wire:
            wire.send(request(*operation, CHUNKED))
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send_for_ever(wire, 65_536 if status == 413 or not pause_seconds else 1, pause_seconds)


# --- Expect: 100-continue ---


async def test_expect_100_continue_gets_an_early_final_status(world: World, target: Target, server: Server) -> None:
    absent = ("POST", "/v1/skills/01890000-0000-7000-8000-000000000000/versions", *target.versions[2:])
    refused = ("POST", target.versions[1], "Authorization: Bearer nonsense", GZIP)
    for operation, length, status in (
        (target.events, 2_000_000, 413),
        (target.versions, 10**9, 413),
        (refused, 1_000, 401),
        (absent, 1_000, 404),
        (("POST", "/nowhere"), 1_000, 404),
    ):
        with Wire(server.port) as wire:
            wire.send(request(*operation, EXPECT, f"Content-Length: {length}"))
            assert wire.answer().error()[0] == status


async def test_expect_100_continue_is_answered(target: Target, server: Server) -> None:
    archive = bundle()
    for operation, body, status in ((target.events, INPUT, 200), (target.versions, archive, 201)):
        with Wire(server.port) as wire:
            wire.send(request(*operation, EXPECT, f"Content-Length: {len(body)}"))
            assert wire.answer().status == 100
            wire.send(body)
            assert wire.answer().status == status


# --- time ---


@pytest.mark.long
@pytest.mark.parametrize("header", ["Content-Length: 27", CHUNKED])
@pytest.mark.parametrize("sent", [0, 5])
async def test_a_body_that_stalls_is_408_and_closes(
    world: World, target: Target, stalling: Server, header: str, sent: int
) -> None:
    for operation in (target.events, target.versions):
        with Wire(stalling.port) as wire:
            piece = INPUT[:sent]
            began = time.monotonic()
            wire.send(request(*operation, header, body=chunk(piece) if sent and header == CHUNKED else piece))
            answer = wire.answer()
            assert answer.error() == (408, "invalid_request")
            assert time.monotonic() - began > 0.4
            assert answer.header("connection") == "close"
            assert wire.is_closed()
    assert await count_inputs(world) == 0


@pytest.mark.long
@pytest.mark.parametrize("interval_seconds", [0.1, 0.001])
async def test_a_body_that_trickles_for_ever_is_408_at_the_deadline(
    world: World, target: Target, hurried: Server, interval_seconds: float
) -> None:
    """Never stalled, never done."""
    for operation in (target.events, target.versions):
        with Wire(hurried.port) as wire:
            began = time.monotonic()
            wire.send(request(*operation, CHUNKED))
            # The answer and the end may come between a look and the next piece.
            with suppress(BrokenPipeError, ConnectionResetError):
                while wire.is_silent(interval_seconds) and time.monotonic() - began < PATIENCE_SECONDS:
                    wire.send(chunk(b" "))
            assert 1.0 < time.monotonic() - began < PATIENCE_SECONDS
            assert wire.answer().error() == (408, "invalid_request")
    assert await count_inputs(world) == 0


@pytest.mark.long
async def test_every_connection_that_was_given_up_is_closed(target: Target, narrow: Server, stalling: Server) -> None:
    """One in two was kept until the garbage collector came by, when an answered request left a circle behind."""
    refused = ("POST", "/v1/sessions")
    announced = "Content-Length: 1000000000"
    for operation, status in ((target.versions, 413), (refused, 401), ((*target.versions[:2],), 401)):
        assert count_open_after(narrow, request(*operation, announced), status) == 0
    for operation in (target.events, target.versions):
        assert count_open_after(stalling, request(*operation, "Content-Length: 27", body=b"x"), 408) == 0


def count_open_after(server: Server, data: bytes, status: int) -> int:
    wires = [Wire(server.port) for _ in range(30)]
    for wire in wires:
        wire.send(data)
    assert {wire.answer().status for wire in wires} == {status}
    deadline = time.monotonic() + PATIENCE_SECONDS
    still_open = 0
    for wire in wires:
        with wire:
            still_open += not wire.is_closed(max(0.01, deadline - time.monotonic()))
    return still_open


async def test_slow_bodies_do_not_delay_others(target: Target, narrow: Server) -> None:
    wires = [Wire(narrow.port) for _ in range(50)]
    for wire in wires:
        wire.send(request(*target.versions, "Content-Length: 1000", body=b"\x1f"))
    # None of them is given up.
    assert exchange(narrow.port, request(*target.events, "Content-Length: 27", body=INPUT)).status == 200
    for wire in wires:
        with wire:
            assert wire.is_silent(0.001)


def test_endless_headers_do_not_delay_others(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert exchange(server.port, request("GET", "/healthz")).status == 200
