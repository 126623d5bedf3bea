"""The supervisor when it starts: faults that it reports, and other users of its folder or address."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from quarterdeck.cli.database import with_server
from quarterdeck.core.settings import read_settings
from quarterdeck.server.address import AddressError, free_address
from quarterdeck.server.data_directory import Cluster, find_postmaster
from quarterdeck.server.embedded_postgres import running
from quarterdeck.server.supervisor import settings_environment
from tests.fault.served import LISTS
from tests.fault.supervised import Served, select_one, serve, start_user
from tests.fault.test_embedded import eventually, folder, go_on, processes_of, ready, server

__all__ = ["folder", "serve"]


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
