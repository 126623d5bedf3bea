"""The supervisor and its children under signals and kills, with real processes and a trivial app."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quarterdeck.server.data_directory import Cluster, find_postmaster
from tests.fault.supervised import Served, select_one, serve
from tests.fault.test_embedded import PATIENCE_SECONDS, eventually, folder, processes_of, server

__all__ = ["folder", "serve"]


@pytest.mark.long
@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything_cleanly(serve: Callable[..., Served], folder: Path, order: signal.Signals) -> None:
    served = serve().up()
    assert served.get("/url") == served.url
    served.signal(order)
    assert served.end() == 0
    assert served.refuses()
    assert processes_of(folder) == []
    assert served.errors == []


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_killed_supervisor_leaves_nothing_and_can_be_started_again_at_once(
    serve: Callable[..., Served], folder: Path, processes: str
) -> None:
    first = serve(QUARTERDECK_SERVER_PROCESSES=processes).up()
    first.signal(signal.SIGKILL)
    second = serve(QUARTERDECK_SERVER_PORT=str(first.address[1]))
    second.up()
    assert select_one(second.url)
    second.signal(signal.SIGKILL)
    second.end()
    eventually(second.refuses)
    eventually(lambda: not processes_of(folder))


@pytest.mark.long
def test_a_killed_supervisor_cuts_a_request_that_hangs(serve: Callable[..., Served]) -> None:
    served = serve().up()
    with under_way(served, "/hang"):
        served.signal(signal.SIGKILL)
        eventually(served.refuses)


@pytest.mark.long
def test_everything_killed_can_be_started_again_at_once(serve: Callable[..., Served], folder: Path) -> None:
    first = serve().up()
    doomed = [first.api(), first.worker(), *server(folder).children(), *processes_of(folder)]
    first.signal(signal.SIGKILL)
    for process in doomed:
        if process.is_running():
            process.kill()
    assert select_one(serve(QUARTERDECK_SERVER_PORT=str(first.address[1])).up().url)


@pytest.mark.long
def test_a_killed_api_server_comes_back(serve: Callable[..., Served]) -> None:
    served = serve().up()
    before, worker = served.api(), served.worker()
    before.kill()
    before_pids = {before.pid, worker.pid}
    # For a moment the worker does not know yet that it is an orphan, and may answer.
    eventually(lambda: not worker.is_running())
    assert served.worker().pid not in before_pids
    assert served.api().pid not in before_pids


@pytest.mark.long
def test_workers_that_die_again_and_again_come_back(serve: Callable[..., Served]) -> None:
    served = serve(QUARTERDECK_SERVER_PROCESSES="2").up()
    for _ in range(4):
        killed = served.get("/")
        os.kill(int(killed), signal.SIGKILL)
        while served.get("/") == killed:
            pass
    assert all(served.get("/") for _ in range(20))


@pytest.mark.long
def test_connections_are_dealt_out_among_the_workers(serve: Callable[..., Served]) -> None:
    if sys.platform != "linux":
        pytest.skip("elsewhere the workers share one queue")
    served = serve(QUARTERDECK_SERVER_PROCESSES="2").up()
    answers = [served.get("/") for _ in range(60)]
    assert len(set(answers)) == 2
    assert min(answers.count(pid) for pid in set(answers)) >= 10


@pytest.mark.long
@pytest.mark.parametrize("victim", ["server", "guard"])
def test_a_killed_database_comes_back(serve: Callable[..., Served], folder: Path, victim: str) -> None:
    served = serve().up()
    doomed = server(folder)
    target = doomed if victim == "server" else doomed.parent()
    assert target is not None
    target.kill()
    eventually(lambda: find_postmaster(Cluster(folder)) not in (None, doomed) and select_one(served.url))
    served.signal(signal.SIGTERM)
    assert served.end() == 0


@pytest.mark.long
def test_ctrl_c_for_the_whole_group_lets_requests_finish(serve: Callable[..., Served]) -> None:
    served = serve().up()
    assert os.getpgid(served.process.pid) != os.getpgid(served.api().pid)
    with under_way(served, "/slow") as request:
        os.killpg(served.process.pid, signal.SIGINT)
        assert served.end() == 0
        answer = b"".join(iter(lambda: request.recv(4096), b""))
    # The rest of what it was saying, to the end of a chunked body.
    assert answer.split(b"\r\n")[1].isdigit()
    assert answer.endswith(b"0\r\n\r\n")


def under_way(served: Served, path: str) -> socket.socket:
    """A request whose answer has begun."""
    connection = socket.create_connection(served.address)
    connection.settimeout(PATIENCE_SECONDS)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    received = b""
    while not received.endswith(b"begun \r\n"):
        received += connection.recv(1)
    return connection


@pytest.mark.long
def test_a_request_that_hangs_delays_the_end_by_shutdown_seconds_at_most(serve: Callable[..., Served]) -> None:
    served = serve(QUARTERDECK_SERVER_SHUTDOWN_SECONDS="1.5").up()
    with under_way(served, "/hang"):
        asked = time.monotonic()
        served.signal(signal.SIGTERM)
        # It hangs for ten times as long as is waited here.
        assert served.end() == 0
        assert time.monotonic() - asked > 0.9


@pytest.mark.long
def test_an_api_server_that_does_not_react_is_killed(serve: Callable[..., Served]) -> None:
    served = serve(QUARTERDECK_SERVER_SHUTDOWN_SECONDS="1").up()
    worker, api = served.worker(), served.api()
    api.suspend()
    served.signal(signal.SIGTERM)
    assert served.end() == 0
    assert not api.is_running()
    eventually(lambda: not worker.is_running())


@pytest.mark.long
def test_a_second_ctrl_c_ends_at_once(serve: Callable[..., Served], folder: Path) -> None:
    served = serve(QUARTERDECK_SERVER_SHUTDOWN_SECONDS="600").up()
    with under_way(served, "/hang"):
        served.signal(signal.SIGINT)
        # Two signals at once would be one. It has noticed the first when nobody takes connections any more.
        eventually(served.refuses)
        time.sleep(0.5)
        assert served.process.poll() is None
        served.signal(signal.SIGINT)
        assert served.end() == 130
    eventually(lambda: not processes_of(folder))
