"""How long a connection without a request is kept, what connections cost, and how many are allowed."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.processes import (
    connections,
    descriptor_limits,
    resident_mib,
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
    """Has little patience and few slots. On the same database."""
    settings = {
        "HTTP_HEADER_SECONDS": HEADER_SECONDS,
        "HTTP_CONNECTIONS": CONNECTIONS,
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


@pytest.mark.long
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


def test_idle_connection_is_closed(brief: Server) -> None:
    with Wire(brief.port) as wire:
        wire.send(HEALTH)
        assert wire.answer().status == 200
        assert wire.is_closed()


async def test_beyond_the_limit_others_wait_until_slots_are_free(brief: Server) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(Wire(brief.port))
        assert await until(lambda: connections(brief) >= CONNECTIONS)
        began = time.monotonic()
        assert exchange(brief.port, HEALTH).status == 200
        assert time.monotonic() - began > HEADER_SECONDS / 4, "there was room for more"


@pytest.mark.long
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
            wire.send_what_it_takes(chunk(b" " * 1_000_000))
            assert resident_mib(server) - before < 20
        assert wire.answer().status in (401, 404)


@linux
async def test_a_server_without_descriptors_lets_callers_wait(brief: Server) -> None:
    assert await until(lambda: connections(brief) == 0)
    with ExitStack() as stack:
        with without_descriptors(brief):
            wire = stack.enter_context(Wire(brief.port))
            wire.send(HEALTH)
            assert wire.is_silent(0.5)
        assert wire.answer().status == 200
