"""The supervisor and its children under signals, kills and restarts, with real processes and a trivial app."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import httpx
import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from quarterdeck.core.settings import read_settings, with_server
from quarterdeck.server.address import AddressError, free_address
from quarterdeck.server.data_directory import Cluster, find_postmaster
from quarterdeck.server.embedded_postgres import running
from quarterdeck.server.supervisor import settings_environment
from tests.fault.served import LISTS
from tests.fault.test_embedded import PATIENCE_SECONDS, USER, eventually, folder, go_on, processes_of, ready, server

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]


class Served:
    """`qd serve` in small, in a process group of its own as a shell would start it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        # A port that a test names must be bound again at once, so it is not drawn from the ephemeral ones.
        environment = {"QUARTERDECK_SERVER_PORT": "0", "QUARTERDECK_SERVER_DATA_DIR": str(folder), **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.served", "serve"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.errors: list[str] = []
        self._said: Queue[str] = Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._said.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: object, keep: Callable[[str], None]) -> None:
        for line in stream:  # type: ignore[attr-defined]
            keep(line.rstrip("\n"))

    def said(self, word: str) -> str:
        first, _, rest = self._said.get(timeout=PATIENCE_SECONDS).partition(" ")
        assert first == word
        return rest

    def up(self) -> "Served":
        self.url = self.said("DATABASE")
        host, _, port = self.said("ADDRESS").rpartition(":")
        self.address = (host, int(port))
        self.worker()
        return self

    def get(self, path: str) -> str:
        """As clients do, it tries again while the API is being restarted."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return httpx.get(f"http://{self.address[0]}:{self.address[1]}{path}", timeout=PATIENCE_SECONDS).text
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def worker(self) -> psutil.Process:
        return psutil.Process(int(self.get("/")))

    def api(self) -> psutil.Process:
        parent = self.worker().parent()
        assert parent is not None
        return parent

    def refuses(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(self.address) != 0

    def end(self, timeout: float = PATIENCE_SECONDS) -> int:
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return code

    def signal(self, order: signal.Signals) -> None:
        self.process.send_signal(order)


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(**variables: str) -> Served:
        started.append(Served(folder, **variables))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [process for process in psutil.process_iter() if serves(process, folder)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for process in left:
        process.kill()
    for one in started:
        one.end()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()
    eventually(lambda: not processes_of(folder))
    assert left == []


def serves(process: psutil.Process, folder: Path) -> bool:
    """One of ours, told by its environment: another run of these tests may be under way."""
    try:
        if "tests.fault.served" not in process.cmdline() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get("QUARTERDECK_SERVER_DATA_DIR") == str(folder)
    except psutil.Error:
        return False


def start_user(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def select_one(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


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


@pytest.mark.long
def test_a_signal_during_the_start_ends_cleanly(serve: Callable[..., Served], folder: Path) -> None:
    served = serve(LINGER_SECONDS="600")
    served.said("DATABASE")
    served.signal(signal.SIGTERM)
    assert served.end() == 0
    assert processes_of(folder) == []


@pytest.mark.long
def test_failure_before_the_api_starts_is_reported_after_the_shutdown(
    serve: Callable[..., Served], folder: Path
) -> None:
    served = serve(REFUSE="yes")
    assert served.end() == 1
    assert served.errors[-1] == "RuntimeError: refused before the API"
    assert processes_of(folder) == []


@pytest.mark.long
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_address_in_use_is_one_line_and_code_2(serve: Callable[..., Served], folder: Path, processes: str) -> None:
    first = serve(QUARTERDECK_SERVER_PROCESSES=processes).up()
    port = str(first.address[1])
    second = serve(QUARTERDECK_SERVER_PROCESSES=processes, QUARTERDECK_SERVER_PORT=port)
    assert second.end() == 2
    assert second.errors == [f"cannot listen on 127.0.0.1:{port}: the address is already in use"]
    assert first.get("/")


@pytest.mark.long
def test_an_address_that_is_not_ours_is_one_line_and_code_2(serve: Callable[..., Served], folder: Path) -> None:
    served = serve(QUARTERDECK_SERVER_HOST="192.0.2.1")
    assert served.end() == 2
    assert len(served.errors) == 1
    assert not folder.exists()


@pytest.mark.long
def test_a_data_directory_at_fault_is_one_line_and_code_1(serve: Callable[..., Served], folder: Path) -> None:
    folder.touch()
    served = serve()
    assert served.end() == 1
    assert len(served.errors) == 1
    assert "is not writable" in served.errors[0]


@pytest.mark.long
def test_api_that_cannot_start_is_reported_and_retried(serve: Callable[..., Served]) -> None:
    served = serve(BROKEN="yes")
    served.said("DATABASE")
    eventually(lambda: any("api has ended 5 times" in line for line in served.errors))
    assert served.process.poll() is None
    pauses = [line for line in served.errors if "it starts again in" in line]
    assert [line.split("in ")[-1].split(" s")[0] for line in pauses[:5]] == ["0.1", "0.2", "0.4", "0.8", "1.6"]
    served.signal(signal.SIGTERM)
    assert served.end() == 0


@pytest.mark.long
def test_commands_and_serve_that_start_at_the_same_instant(serve: Callable[..., Served], folder: Path) -> None:
    users = [start_user(folder) for _ in range(2)]
    served = serve()
    users += [start_user(folder) for _ in range(2)]
    assert [go_on(user) for user in users] == [0] * len(users)
    served.up()
    assert select_one(served.url)


@pytest.mark.long
def test_a_command_that_ends_leaves_the_server_it_started_to_serve(serve: Callable[..., Served], folder: Path) -> None:
    user = start_user(folder)
    ready(user)
    before = server(folder)
    served = serve().up()
    assert go_on(user) == 0
    time.sleep(0.5)
    assert server(folder) == before
    assert select_one(served.url)
    # Its guard is nobody's child now; the one that serve has standing by takes over.
    guard = before.parent()
    assert guard is not None
    guard.kill()
    eventually(lambda: find_postmaster(Cluster(folder)) not in (None, before) and select_one(served.url))
    served.signal(signal.SIGTERM)
    assert served.end() == 0
    assert processes_of(folder) == []


@pytest.mark.long
def test_two_servers_on_one_folder_stop_in_either_order(serve: Callable[..., Served], folder: Path) -> None:
    first, second = serve().up(), serve().up()
    before = server(folder)
    first.signal(signal.SIGTERM)
    assert first.end() == 0
    assert server(folder) == before
    assert select_one(second.url)
    second.signal(signal.SIGTERM)
    assert second.end() == 0
    assert processes_of(folder) == []


@pytest.mark.long
def test_with_an_address_of_a_database_none_is_started(serve: Callable[..., Served], folder: Path) -> None:
    with running(folder / "elsewhere") as url:
        served = serve(QUARTERDECK_DATABASE_URL=url).up()
        assert served.url == served.get("/url") == url
        assert not (folder / "postgres").exists()
        served.signal(signal.SIGTERM)
        assert served.end() == 0
        assert select_one(url)


@pytest.mark.long
def test_the_owners_address_is_kept_from_children(serve: Callable[..., Served], folder: Path) -> None:
    with running(folder / "elsewhere") as url:
        weak = make_conninfo(url, application_name="weak")
        served = serve(QUARTERDECK_DATABASE_URL=weak, QUARTERDECK_DATABASE_OWNER_URL=url, APP_URL=weak, **LISTS).up()
        assert served.url == url, "what is done before they start is done as the owner"
        assert (served.get("/url"), served.get("/owner_url")) == (weak, "")
        assert served.get("/lists") == " ".join(LISTS.values())
        served.signal(signal.SIGTERM)
        assert served.end() == 0


@pytest.mark.long
def test_children_read_the_same_settings() -> None:
    environ = {"QUARTERDECK_SERVER_PORT": "1", "QUARTERDECK_HTTP_BODY_SECONDS": "2.5", **LISTS}
    settings = with_server(read_settings(environ), port=2, data_dir="elsewhere")
    assert read_settings(environ | settings_environment(settings)) == settings


@pytest.mark.long
def test_address_in_use_is_reported_even_if_it_could_be_shared() -> None:
    """Granian binds with SO_REUSEPORT, so the system alone would not refuse a second server."""
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        with pytest.raises(AddressError, match="already in use"):
            free_address("127.0.0.1", first.getsockname()[1], wait_seconds=0)


@pytest.mark.long
def test_a_predecessor_may_take_a_moment_to_release_the_address() -> None:
    predecessor = socket.create_server(("127.0.0.1", 0))
    port = predecessor.getsockname()[1]
    closing = threading.Timer(0.5, predecessor.close)
    closing.start()
    assert free_address("127.0.0.1", port, wait_seconds=60) == ("127.0.0.1", port)
    closing.join()
