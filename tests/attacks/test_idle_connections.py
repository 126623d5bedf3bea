"""Idle connections need no credential and can take every connection of a process. The health port still answers."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cli.command import qd
from tests.processes import connections, until
from tests.raw_http import Wire, exchange, request
from tests.world import Server, free_port, serving

CONNECTIONS = 20
HEALTH_PORT = free_port()
HEALTH = request("GET", "/healthz")


@pytest.fixture(scope="module")
def narrow(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"HTTP_CONNECTIONS": CONNECTIONS, "SERVER_HEALTH_PORT": HEALTH_PORT, "SERVER_PROCESSES": 1}
    with serving(server.database_url, tmp_path_factory.mktemp("narrow"), **settings) as narrow:
        yield narrow


async def test_health_checks_are_answered_while_idle_connections_take_all_others(narrow: Server) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(Wire(narrow.port))
        assert await until(lambda: connections(narrow) >= CONNECTIONS)
        waiting = stack.enter_context(Wire(narrow.port))
        waiting.send(HEALTH)
        assert waiting.is_silent(1.0), "the port of the API accepts nothing more"
        for path in ("/healthz", "/readyz"):
            answer = exchange(HEALTH_PORT, request("GET", path))
            assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
            assert answer.header("connection") == "close"


def test_the_health_port_answers_health_checks_only(narrow: Server) -> None:
    with Wire(HEALTH_PORT) as wire:
        wire.send(request("HEAD", "/healthz"))
        assert wire.answer(to_head=True).status == 200
        assert wire.is_closed()
    for sent in (request("GET", "/v1/whoami"), request("POST", "/healthz"), b"nonsense\r\n\r\n"):
        assert exchange(HEALTH_PORT, sent).status == 404
    with Wire(HEALTH_PORT) as wire:
        wire.send_what_it_takes(b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 100_000)
        assert wire.rest() == b"", "a head that is too long is not answered"


def test_the_health_port_has_few_connections(narrow: Server) -> None:
    """It is for a balancer, and not to be reached by others."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(HEALTH_PORT)) for _ in range(64)]
        with Wire(HEALTH_PORT) as wire:
            assert wire.is_closed()
        for wire in wires[:10]:
            wire.send(HEALTH)
            assert wire.answer().status == 200


@pytest.mark.long
def test_a_health_port_that_is_taken_prevents_the_start(narrow: Server) -> None:
    settings = {"SERVER_HEALTH_PORT": str(HEALTH_PORT), "DATABASE_URL": "postgresql:///x"}
    done = qd("api", "--port", "0", **settings)
    assert done.returncode == 2
    assert f"{HEALTH_PORT}: the address is already in use" in done.stderr
