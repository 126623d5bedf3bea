"""Connections with pipelining, floods, and clients that leave. Over raw sockets."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.processes import UNKILLED, connections, is_gone, resident_mib, stop, until
from tests.raw_http import Wire, chunk, exchange, request
from tests.world import Server, World, serving

INPUT = b'{"type":"input","text":"x"}'
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
EXPECT = "Expect: 100-continue"
HEALTH = request("GET", "/healthz")
LARGE = request("GET", "/openapi.json")
# What the event loop and its tasks say of a fault that nobody caught.
UNCAUGHT = ("Exception in callback", "exception was never retrieved", "Fatal error", "broken off", "error status in")


@pytest.fixture(scope="module")
def hasty(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Gives up soon on everything. On the same database."""
    settings = {
        "HTTP_HEADER_SECONDS": 1.0,
        "HTTP_BODY_STALL_SECONDS": 0.5,
        "STREAM_SEND_SECONDS": 1.0,
    }
    with serving(server.database_url, tmp_path_factory.mktemp("hasty"), **settings) as hasty:
        yield hasty


@pytest.fixture
async def authorization(world: World) -> str:
    return f"Authorization: Bearer {world.key}"


def sending_in_vain(wire: Wire, data: bytes, times: int) -> None:
    """To one who does not take everything."""
    wire._socket.settimeout(0.5)
    with suppress(TimeoutError, ConnectionError):
        for _ in range(times):
            wire.send(data)


@contextmanager
def read_by_another(wire: Wire) -> Iterator[None]:
    def read() -> None:
        with suppress(OSError):
            while wire._socket.recv(65536):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        wire._socket.shutdown(socket.SHUT_RDWR)
        reader.join()


# --- pipelining ---


@pytest.mark.long
def test_a_flood_of_requests_costs_bounded_memory(server: Server) -> None:
    """Each answer let in as much again as had come before it."""
    before = resident_mib(server)
    with Wire(server.port) as wire, read_by_another(wire):
        sending_in_vain(wire, HEALTH * 4000, times=60)
        assert resident_mib(server) - before < 8


def test_a_flood_behind_unread_answers_costs_bounded_memory(server: Server) -> None:
    before = resident_mib(server)
    with Wire(server.port, receive_buffer_bytes=4096) as wire:
        sending_in_vain(wire, LARGE * 10 + HEALTH * 20_000, times=60)
        assert resident_mib(server) - before < 8


@pytest.mark.long
def test_requests_behind_unread_answers_are_answered_once_those_are_read(server: Server) -> None:
    """Also where more has come than is taken ahead, and where it ends in the middle of one."""
    with Wire(server.port, receive_buffer_bytes=4096) as wire:
        sender = threading.Thread(target=lambda: wire.send(LARGE * 3 + HEALTH * 10_000 + HEALTH[:-5]))
        sender.start()
        time.sleep(0.2)
        for _ in range(10_003):
            assert wire.answer().status == 200
        sender.join()
        wire.send(HEALTH[-5:])
        assert wire.answer().status == 200


async def test_large_heads_and_bodies_come_one_behind_the_other(
    world: World, server: Server, authorization: str
) -> None:
    """Whatever has to wait, nothing waits for ever."""
    path = f"/v1/sessions/{await world.new_session()}/events"
    text = b'{"type":"input","text":"' + b"a" * 600_000 + b'"}'
    filler = "X-A: " + "a" * 64_000
    requests = [
        request("POST", path, authorization, JSON, f"Content-Length: {len(text)}", body=text),
        request("POST", path, authorization, JSON, CHUNKED, filler, body=b"1b;" + b"a" * 9_000 + b"\r\n" + INPUT),
        b"\r\n0\r\n\r\n",
        request("GET", "/healthz", filler),
        HEALTH,
    ]
    with Wire(server.port) as wire:
        sender = threading.Thread(target=lambda: wire.send(b"".join(requests) * 3))
        sender.start()
        assert [wire.answer().status for _ in range(12)] == [200] * 12
        sender.join()


# --- Expect ---


async def test_no_100_continue_inside_a_response(world: World, server: Server, authorization: str) -> None:
    """While a stream is sent, it is watched whether its reader leaves."""
    path = f"/v1/sessions/{await world.new_session()}/events"
    for framing in ([], ["Content-Length: 0"], ["Content-Length: 5"], [CHUNKED]):
        with Wire(server.port) as wire:
            wire.send(request("GET", path, authorization, "Accept: text/event-stream", EXPECT, *framing))
            received = wire.read_until(b"retry:")
            assert received.startswith(b"HTTP/1.1 200 ")
            assert b"100 Continue" not in received


# --- clients that are gone ---


def leave(wire: Wire, how: str) -> None:
    """`reset`: pending data is discarded and the server is told so."""
    if how == "reset":
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire._socket.close()


@pytest.mark.parametrize("how", ["reset", "closed"])
async def test_disconnected_clients_leave_nothing_behind(
    world: World, hasty: Server, authorization: str, how: str
) -> None:
    path = f"/v1/sessions/{await world.new_session()}/events"
    stream = request("GET", path, authorization, "Accept: text/event-stream")
    body = chunk(INPUT) + b"0\r\n\r\n"
    whole = [
        HEALTH,
        LARGE * 20,
        stream,
        stream + HEALTH * 1000,
        request("POST", path, authorization, JSON, CHUNKED, body=body) + HEALTH,
        request("POST", path, authorization, JSON, CHUNKED, EXPECT, body=body),
        request("POST", path, CHUNKED, body=chunk(b"x" * 500_000)) + body,
        request("POST", "/nowhere", "Content-Length: 500000", body=b"x" * 500_000) + HEALTH,
        request("POST", path, authorization, JSON, CHUNKED, body=b"nonsense" * 20_000),
        b"nonsense\r\n\r\n" + b"x" * 500_000,
    ]
    for sent in whole:
        for part in range(1, 9):
            wire = Wire(hasty.port, receive_buffer_bytes=4096)
            sending_in_vain(wire, sent[: len(sent) * part // 8], times=1)
            leave(wire, how)
    assert await until(lambda: connections(hasty) == 0)
    log = hasty.log.read_text()
    assert [line for line in log.splitlines() if any(words in line for words in UNCAUGHT)] == []


@pytest.mark.long
async def test_a_server_stops_beside_idle_connections(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, **UNKILLED) as stopping, ExitStack() as stack:
        wires = [stack.enter_context(Wire(stopping.port)) for _ in range(10)]
        for wire in wires[:5]:
            wire.send(HEALTH)
            assert wire.answer().status == 200
        stop(stopping)
        assert await until(lambda: is_gone(stopping))
        assert "Killing" not in stopping.log.read_text()


# --- a flood of tiny chunks ---


@pytest.mark.long
def test_one_byte_chunks_do_not_delay_others(server: Server) -> None:
    """No credential is needed to send it. Other clients are served meanwhile."""
    flood = chunk(b" ") * 500_000
    stopped = threading.Event()

    def send() -> None:
        while not stopped.is_set():
            with Wire(server.port) as wire:
                wire.send_what_it_takes(request("POST", "/v1/sessions", JSON, CHUNKED) + flood)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(100):
            assert exchange(server.port, HEALTH).status == 200
    finally:
        stopped.set()
        sender.join()


@pytest.mark.long
async def test_one_byte_chunks_of_a_read_body_do_not_delay_others(
    world: World, server: Server, authorization: str
) -> None:
    """With a credential the application reads the body, piece by piece."""
    path = f"/v1/sessions/{await world.new_session()}/events"
    body = chunk(b" ") * 30_000 + b"0\r\n\r\n"
    with Wire(server.port) as wire:
        wire.send(request("POST", path, authorization, JSON, CHUNKED, body=body))
        for _ in range(100):
            assert exchange(server.port, HEALTH).status == 200
        # 408: on a busy machine the body comes slower than is allowed.
        assert wire.answer().error()[0] in (400, 408)
