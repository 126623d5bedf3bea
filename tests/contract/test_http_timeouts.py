"""How long a connection is kept that brings no request or takes no answer, what it costs, and who waits for it."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from quarterdeck.core.actors import CredentialKind
from quarterdeck.core.secrets import mint
from tests.processes import (
    UNKILLED,
    connections,
    descriptor_limits,
    descriptors,
    is_gone,
    resident_mib,
    stop,
    until,
    without_descriptors,
)
from tests.raw_http import PATIENCE_SECONDS, Wire, chunk, exchange, request
from tests.world import Server, serving

HEADER_SECONDS = 1.0
CONNECTIONS = 20
HEALTH = request("GET", "/healthz")
# Larger than what the kernel takes on behalf of a reader with a small buffer.
LARGE = request("GET", "/openapi.json") * 20
NO_DESCRIPTORS = "Too many open files"
linux = pytest.mark.skipif(sys.platform != "linux", reason="connections are counted by Linux's /proc")


@pytest.fixture(scope="module")
def brief(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Has little patience and few places. On the same database."""
    settings = {
        "HTTP_HEADER_SECONDS": HEADER_SECONDS,
        "HTTP_UNREAD_SECONDS": 1.0,
        "HTTP_CONNECTIONS": CONNECTIONS,
        "HTTP_LINGER_SECONDS": 5.0,
    }
    with serving(server.database_url, tmp_path_factory.mktemp("brief"), **settings) as brief:
        yield brief


@contextmanager
def descriptors_allowed(number: int) -> Iterator[None]:
    """To this process and those it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def deaf(port: int) -> Wire:
    """For one who asks and never reads."""
    return Wire(port, receive_buffer_bytes=4096)


@pytest.mark.parametrize("sent", [b"", b"GET", HEALTH[:-2], b"\r\n"], ids=["nothing", "method", "head", "line end"])
def test_a_head_that_does_not_come_ends_the_connection(brief: Server, sent: bytes) -> None:
    with Wire(brief.port) as wire:
        wire.send(sent)
        assert wire.is_closed()


def test_a_head_that_trickles_ends_the_connection(brief: Server) -> None:
    """Never stalled, never done."""
    with Wire(brief.port) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nX-A: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(wire)


def trickle(wire: Wire) -> None:
    until_seconds = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until_seconds:
        wire.send(b"a")
        time.sleep(0.05)


def test_a_connection_on_which_nothing_more_is_asked_is_closed(brief: Server) -> None:
    with Wire(brief.port) as wire:
        wire.send(HEALTH)
        assert wire.answer().status == 200
        assert wire.is_closed()


@linux
async def test_an_answer_that_nobody_reads_ends_the_connection(brief: Server) -> None:
    """Such a connection was kept for ever: no credential was needed to take every place there is."""
    assert await until(lambda: connections(brief) == 0)
    before = descriptors(brief)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS // 2):
            stack.enter_context(deaf(brief.port)).send(LARGE)
        assert await until(lambda: connections(brief, stuck=True) >= CONNECTIONS // 2)
        assert await until(lambda: connections(brief) == 0)
    assert await until(lambda: descriptors(brief) <= before)


@linux
def test_a_slow_reader_gets_it_all(brief: Server) -> None:
    """Slower than the patience with one that takes nothing, but for ever taking some."""
    whole = exchange(brief.port, request("GET", "/openapi.json")).body
    with Wire(brief.port, receive_buffer_bytes=32_768) as wire:
        wire.send(request("GET", "/openapi.json", "Connection: close"))
        assert wire.rest(bytes_at_once=len(whole) // 12, pause_seconds=0.2).endswith(whole)


async def test_beyond_the_limit_others_wait_until_places_are_free(brief: Server) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(Wire(brief.port))
        assert await until(lambda: connections(brief) >= CONNECTIONS)
        began = time.monotonic()
        assert exchange(brief.port, HEALTH).status == 200
        assert time.monotonic() - began > HEADER_SECONDS / 4, "there was room for more"


@linux
def test_a_server_allows_itself_the_descriptors_that_its_connections_need(database_url: str, tmp_path: Path) -> None:
    few, most = 512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with descriptors_allowed(few), serving(database_url, tmp_path, HTTP_CONNECTIONS=few) as limited:
        assert {soft for soft, _ in descriptor_limits(limited).values()} == {most}


def test_heads_cost_bounded_memory(server: Server) -> None:
    """Each is held in memory until it is there as a whole."""
    exchange(server.port, HEALTH)
    before = resident_mib(server)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.port)) for _ in range(100)]
        for wire in wires:
            wire.send(b"GET /healthz HTTP/1.1\r\nX-A: ")
        for _ in range(15):
            for wire in wires:
                wire.send_what_it_takes(b"a" * 20_000)
        assert exchange(server.port, HEALTH).status == 200
        # 100 times 300 kB came in.
        assert resident_mib(server) - before < 20


@pytest.mark.parametrize("path", ["/v1/sessions", "/nowhere"])
def test_a_flood_behind_an_early_answer_costs_no_memory(server: Server, path: str) -> None:
    exchange(server.port, HEALTH)
    before = resident_mib(server)
    with Wire(server.port) as wire:
        wire.send(request("POST", path, "Transfer-Encoding: chunked"))
        for _ in range(60):
            wire.send(chunk(b" " * 1_000_000))
            assert resident_mib(server) - before < 20
        wire.send(b"0\r\n\r\n")
        assert wire.answer().status in (401, 404)


async def test_a_server_stops_beside_clients_that_do_nothing(database_url: str, tmp_path: Path) -> None:
    """It waited for them until it was killed, and then left undone what is to be done at the end. What is under way
    is answered, also after they have been given up."""
    body = b'{"title":"x"}'
    # Looked up after the body has come: until then it is under way.
    key = f"Authorization: Bearer {mint(CredentialKind.API_KEY, 'live').text}"
    headers = (key, "Content-Type: application/json", f"Content-Length: {len(body)}")
    with serving(database_url, tmp_path, **UNKILLED) as stopping, ExitStack() as stack:
        half, unread, slow = (stack.enter_context(deaf(stopping.port)) for _ in range(3))
        half.send(HEALTH[:-2])
        unread.send(LARGE)
        slow.send(request("POST", "/v1/sessions", *headers, body=body[:5]))
        assert await until(lambda: connections(stopping, stuck=True) == 1)
        stop(stopping)
        assert half.is_closed(within_seconds=10)
        slow.send(body[5:])
        assert slow.answer().error() == (401, "unauthorized")
        assert await until(lambda: is_gone(stopping))


@linux
async def test_a_server_without_descriptors_lets_callers_wait(brief: Server) -> None:
    """It says so in its log, and takes them once it can."""
    assert await until(lambda: connections(brief) == 0)
    with ExitStack() as stack:
        with without_descriptors(brief):
            wire = stack.enter_context(Wire(brief.port))
            wire.send(HEALTH)
            assert await until(lambda: NO_DESCRIPTORS in brief.log.read_text())
        assert wire.answer().status == 200
