"""`qd serve` as a whole: killed without warning, and started again on the same folder at once."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from quarterdeck.server.data_directory import Cluster
from tests.cli.command import QD, environment, qd_serve
from tests.fault.test_embedded import eventually
from tests.world import free_port


def logins(data: Path) -> set[str]:
    # Without those that have not signed in yet.
    query = (
        "SELECT usename::text FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND usename IS NOT NULL"
    )
    with psycopg.connect(Cluster(data).url) as connection:
        return {name for (name,) in connection.execute(query.encode()).fetchall()}


def max_connections(data: Path) -> int:
    with psycopg.connect(Cluster(data).url) as connection:
        row = connection.execute("SELECT current_setting('max_connections')::int").fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.long
def test_a_killed_supervisor_leaves_nothing_behind_and_loses_nothing(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    with qd_serve(data, tmp_path / "first", port, DATABASE_SUBMIT_CONNECTIONS="90") as serving:
        # 8 + 90 + 1 of the API, 8 + 1 of the worker.
        assert max_connections(data) == 108 + 30, "the server has room for its processes"
        headers = {"Authorization": f"Bearer {serving.exported('QD_KEY')}"}
        session = httpx.post(f"{serving.url}/v1/sessions", json={}, headers=headers, timeout=60).json()["id"]
        path, body = f"/v1/sessions/{session}/events", {"type": "input", "text": "demo: slow 99"}
        first = httpx.post(serving.url + path, json=body, headers=headers | {"Idempotency-Key": "k"}, timeout=60)
        assert first.status_code == 200
        assert logins(data) == {"quarterdeck_app"}, "the owner of the tables only migrates"
        family = psutil.Process(serving.process.pid).children(recursive=True)
        assert len(family) >= 3
        os.kill(serving.process.pid, signal.SIGKILL)
        serving.process.wait()
        with qd_serve(data, tmp_path / "second", port) as again:
            same = httpx.post(again.url + path, json=body, headers=headers | {"Idempotency-Key": "k"}, timeout=60)
            assert (same.content, same.headers["idempotency-replayed"]) == (first.content, "true")
            steered = httpx.post(again.url + path, json=body, headers=headers, timeout=60).json()
            assert steered == first.json() | {"outcome": "steered"}
            eventually(lambda: not any(member.is_running() for member in family))


@pytest.mark.long
def test_on_a_terminal_the_first_key_is_not_pushed_away(tmp_path: Path) -> None:
    port = free_port()
    screen, terminal = pty.openpty()
    command = [*QD, "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
    process = subprocess.Popen(command, env=environment(), stdout=terminal, stderr=terminal, text=True)
    os.close(terminal)
    shown = ""
    try:
        while "Ctrl-C" not in shown:
            shown += os.read(screen, 65536).decode()
        key, address = shown.index("export QD_KEY="), shown.index("Serving on")
        assert key < address
        assert "{" not in shown[address:], "nothing is logged after it"
        for path in ("/healthz", "/nowhere"):
            httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)
        while '"path":"/nowhere","status":404' not in shown:
            shown += os.read(screen, 65536).decode()
        assert "/healthz" not in shown
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        os.close(screen)
