"""The embedded PostgreSQL under starts, stops and kills of everybody around it, with real processes."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from quarterdeck.server import data_directory as files
from quarterdeck.server.data_directory import SYSTEM_USER, Cluster, EmbeddedError, find_postmaster
from quarterdeck.server.embedded_postgres import running

pytestmark = pytest.mark.long

# Only a failure takes this long.
PATIENCE_SECONDS = 120.0

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

# One user of the server in a process of its own: says READY, then waits to be told to go on or to be killed.
USER = """
import sys, psycopg
from pathlib import Path
from quarterdeck.server.embedded_postgres import running
with running(Path(sys.argv[1])) as url:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(1)")
        connection.execute("CREATE TABLE IF NOT EXISTS visit (at timestamptz DEFAULT now())")
        connection.execute("INSERT INTO visit DEFAULT VALUES")
    print("READY", flush=True)
    sys.stdin.readline()
    psycopg.connect(url).execute("SELECT 1")
"""


def processes_of(folder: Path) -> list[psutil.Process]:
    """Guards and servers of this folder, by what their command line names."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(folder) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def eventually(holds: Callable[[], object], within_seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + within_seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_seconds} s"
        time.sleep(0.02)


def scalar(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory inside a private one, as `mktemp -d` makes it; nothing may run there at the end."""
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as private:
        yield Path(private).resolve() / "data"
        left = processes_of(Path(private).resolve())
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        assert left == []


@pytest.fixture
def user(folder: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    users: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        users.append(process)
        return process

    yield start
    for process in users:
        process.kill()
        process.communicate()
    eventually(lambda: not processes_of(folder))


def ready(user: "subprocess.Popen[str]") -> None:
    assert user.stdout is not None
    assert user.stdout.readline() == "READY\n"


def go_on(user: "subprocess.Popen[str]") -> int:
    user.communicate("go on\n", timeout=PATIENCE_SECONDS)
    return user.returncode


def server(folder: Path) -> psutil.Process:
    found = find_postmaster(Cluster(folder))
    assert found is not None
    return found


def test_data_survives_a_restart(folder: Path) -> None:
    with running(folder) as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        assert processes_of(folder)
    assert processes_of(folder) == []
    with running(folder) as url:
        assert scalar(url, "SELECT answer FROM kept") == 42
    assert processes_of(folder) == []


def test_it_is_durable_sorts_by_code_point_and_has_no_tcp_port(folder: Path) -> None:
    with running(folder) as url:
        for name, value in {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "data_checksums": "on",
            "server_encoding": "UTF8",
            "listen_addresses": "",
            "max_connections": "100",
            "TimeZone": "UTC",
        }.items():
            assert scalar(url, f"SELECT current_setting('{name}')") == value, name
        assert scalar(url, "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{a,B,ä,Z}'::text[]) AS t(x)") == "BZaä"
        assert scalar(url, "SELECT upper('ä')") == "Ä"
        assert psutil.Process(server(folder).pid).net_connections(kind="inet") == []


def test_socket_is_not_accessible_to_other_users(folder: Path) -> None:
    with running(folder):
        cluster = Cluster(folder)
        assert stat.S_IMODE(cluster.socket_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((cluster.socket_dir / files.SOCKET_NAME).stat().st_mode) == 0o700


@as_root
def test_another_account_cannot_connect_even_where_it_can_walk(folder: Path) -> None:
    def connect_as_nobody(url: str) -> None:
        os.setgid(65534)
        os.setuid(65534)
        with suppress(psycopg.OperationalError):
            psycopg.connect(url)
            os._exit(1)

    with running(folder) as url:
        for path in (folder, folder.parent):
            path.chmod(0o755)
        attempt = multiprocessing.get_context("fork").Process(target=connect_as_nobody, args=(url,))
        attempt.start()
        attempt.join()
        assert attempt.exitcode == 0


@as_root
def test_as_root_only_the_servers_account_is_let_through(folder: Path) -> None:
    with running(folder):
        assert server(folder).username() == SYSTEM_USER
        for path in (folder, folder.parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o710


@as_root
def test_root_leaves_an_ordinary_users_folder_to_that_user(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with running(folder):
        assert server(folder).uids().real == 65534
    assert {path.stat().st_uid for path in folder.iterdir()} == {65534}


@as_root
def test_a_folder_of_an_account_that_is_gone_is_taken_over(folder: Path) -> None:
    with running(folder):
        pass
    for path in [folder / "postgres", *(folder / "postgres").rglob("*")]:
        os.chown(path, 54321, 54321, follow_symlinks=False)
    with running(folder) as url:
        assert scalar(url, "SELECT 1") == 1


@pytest.mark.parametrize("name", ["x" * 100, "with, comma", 'with "quotes" and %20'])
def test_awkward_paths(folder: Path, name: str) -> None:
    folder = folder / name
    with running(folder) as url:
        socket_dir = Cluster(folder).socket_dir
        assert (socket_dir == folder / "postgres") == name.startswith('with "')
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        assert scalar(url, "SELECT 1") == 1
    assert socket_dir == folder / "postgres" or not socket_dir.exists()


@as_root
def test_a_socket_folder_planted_by_another_user_is_refused(folder: Path) -> None:
    folder = folder / ("x" * 100)
    folder.mkdir(parents=True)
    planted = Cluster(folder).socket_dir
    planted.mkdir()
    os.chown(planted, 65534, 65534)
    try:
        with pytest.raises(EmbeddedError, match="belongs to another user"), running(folder):
            pass
    finally:
        planted.rmdir()


def test_a_second_user_shares_the_server_and_leaves_it_running(
    folder: Path, user: Callable[[], "subprocess.Popen[str]"]
) -> None:
    with running(folder) as url:
        before = server(folder)
        second = user()
        ready(second)
        assert go_on(second) == 0
        assert server(folder) == before
        assert scalar(url, "SELECT 1") == 1


def test_process_that_started_the_server_may_end_first(
    folder: Path, user: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first, second = user(), None
    ready(first)
    before = server(folder)
    second = user()
    ready(second)
    assert go_on(first) == 0
    assert server(folder) == before
    assert go_on(second) == 0
    eventually(lambda: not processes_of(folder))


def test_a_killed_user_leaves_no_server_behind(folder: Path, user: Callable[[], "subprocess.Popen[str]"]) -> None:
    only = user()
    ready(only)
    only.kill()
    only.wait()
    eventually(lambda: not processes_of(folder))
    assert "fast shutdown" in (folder / "postgres.log").read_text()


def test_concurrent_starts_and_stops(folder: Path, user: Callable[[], "subprocess.Popen[str]"]) -> None:
    rounds, at_once = 4, 4
    for _ in range(rounds):
        users = [user() for _ in range(at_once)]
        assert [go_on(one) for one in users] == [0] * at_once
    with running(folder) as url:
        assert scalar(url, "SELECT count(*) FROM visit") == rounds * at_once


def test_start_during_a_shutdown(folder: Path, user: Callable[[], "subprocess.Popen[str]"]) -> None:
    for pause_seconds in (0.0, 0.01, 0.05):
        first = user()
        ready(first)
        first.kill()
        time.sleep(pause_seconds)
        with running(folder) as url:
            assert scalar(url, "SELECT 1") == 1


def test_everything_killed_at_once_recovers_what_was_committed(
    folder: Path, user: Callable[[], "subprocess.Popen[str]"]
) -> None:
    only = user()
    ready(only)
    doomed = [*server(folder).children(), *processes_of(folder), psutil.Process(only.pid)]
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with running(folder) as url:
        assert scalar(url, "SELECT count(*) FROM visit") == 1
    assert "automatic recovery in progress" in (folder / "postgres.log").read_text()


def test_a_killed_guard_is_replaced(folder: Path, user: Callable[[], "subprocess.Popen[str]"]) -> None:
    only = user()
    ready(only)
    guard = server(folder).parent()
    assert guard is not None
    guard.kill()
    # Its parent does not wait for it.
    eventually(lambda: guard.status() == psutil.STATUS_ZOMBIE)
    with running(folder) as url:
        assert scalar(url, "SELECT count(*) FROM visit") == 1
        only.kill()
        only.wait()


def test_a_server_without_a_guard_is_replaced(folder: Path) -> None:
    """What a killed guard leaves where the kernel does not pass its death on."""
    with running(folder):
        account = files.Account(server(folder).uids().real, server(folder).gids().real)
    command = files.server_command(Cluster(folder))
    identity = files.identity(account if os.geteuid() == 0 else None)
    with (folder / "postgres.log").open("ab") as log:
        orphan = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **identity)
    try:
        eventually(lambda: find_postmaster(Cluster(folder)))
        with running(folder) as url:
            eventually(lambda: orphan.poll() is not None)
            assert scalar(url, "SELECT 1") == 1
    finally:
        orphan.kill()
        orphan.wait()


def test_a_stale_pid_file_that_names_a_living_stranger(folder: Path) -> None:
    with running(folder):
        left = (folder / "postgres" / "postmaster.pid").read_text()
        account = server(folder).uids().real
    # A process of the server's own account: PostgreSQL itself sees through the pid of anybody else's process.
    identity = {"user": account} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["sleep", "60"], cwd="/", **identity)  # type: ignore[call-overload]
    try:
        for name in ("postmaster.pid", f"{files.SOCKET_NAME}.lock"):
            path = folder / "postgres" / name
            path.write_text(f"{stranger.pid}\n" + left.split("\n", 1)[1])
            os.chown(path, account, -1)
            path.chmod(0o600)
        with running(folder) as url:
            assert scalar(url, "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "99999999\n", "torn"])
def test_a_torn_pid_file(folder: Path, content: str) -> None:
    with running(folder):
        account = server(folder).uids().real
    for name in ("postmaster.pid", f"{files.SOCKET_NAME}.lock"):
        (folder / "postgres" / name).write_text(content)
        os.chown(folder / "postgres" / name, account, -1)
    with running(folder) as url:
        assert scalar(url, "SELECT 1") == 1


def test_a_signal_for_all_does_not_take_the_server_from_its_user(folder: Path) -> None:
    with running(folder) as url:
        guard = server(folder).parent()
        assert guard is not None
        for order in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            guard.send_signal(order)
        time.sleep(0.3)
        assert scalar(url, "SELECT 1") == 1


def fault_of(folder: Path) -> str:
    with pytest.raises(EmbeddedError) as caught, running(folder):
        pass
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_data_directory_that_cannot_be_written(folder: Path) -> None:
    folder.parent.joinpath("file").touch()
    assert "is not writable" in fault_of(folder.parent / "file" / "data")


def test_a_cluster_of_another_major_version(folder: Path) -> None:
    with running(folder):
        pass
    (folder / "postgres" / "PG_VERSION").write_text("16\n")
    assert "created by PostgreSQL 16" in fault_of(folder)


def test_a_folder_that_is_no_cluster_is_left_alone(folder: Path) -> None:
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "mine.txt").touch()
    assert "not a PostgreSQL data directory" in fault_of(folder)
    assert [path.name for path in (folder / "postgres").iterdir()] == ["mine.txt"]


def test_a_half_made_cluster_is_made_anew(folder: Path) -> None:
    (folder / "postgres.new").mkdir(parents=True)
    (folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    with running(folder) as url:
        assert scalar(url, "SELECT 1") == 1


def test_initdb_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(folder)
    folder.mkdir()
    monkeypatch.setattr(files, "ROLE", "pg_reserved")
    with pytest.raises(EmbeddedError, match="pg_reserved"):
        files.prepare(cluster)
    assert not cluster.pgdata.exists()


def test_a_server_that_does_not_start(folder: Path) -> None:
    with running(folder):
        pass
    with (folder / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("shared_buffers = 'plenty'\n")
    fault = fault_of(folder)
    assert "FATAL" in fault
    assert str(folder / "postgres.log") in fault
