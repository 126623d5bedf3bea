"""The metrics port: one for all processes of a command, through restarts of processes and without a database."""

import signal
from collections.abc import Mapping
from pathlib import Path

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict

from tests.cli.command import qd, qd_serve
from tests.processes import serving_pids, stop
from tests.workers import ended, eventually, started, working
from tests.world import LOGIN, PATIENT, Server, World, app_url, free_port, serving

EVENTS = "/v1/sessions/{session_id}/events"
# Long enough for a busy machine, and short enough to wait for a request that fails.
SETTINGS = PATIENT | {"DATABASE_POOL_WAIT_SECONDS": 8, "RECEIPT_SWEEP_INTERVAL_SECONDS": 0.5, "SERVER_PROCESSES": 2}


async def scrape(port: int) -> dict[str, float]:
    """Values by name and sorted values of labels. Without buckets."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.status_code == 200
    return {
        f"{sample.name.removeprefix('quarterdeck_')} {' '.join(sorted(sample.labels.values()))}".strip(): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if "le" not in sample.labels
    }


async def reach(port: int, expected: Mapping[str, float | None], *positive: str) -> dict[str, float]:
    """Wait until the port reports these figures, and some value above 0 for the others."""
    found: dict[str, float] = {}

    async def look() -> bool:
        nonlocal found
        found = await scrape(port)
        return {name: found.get(name) for name in expected} == expected and all(found.get(name) for name in positive)

    try:
        await eventually(look)
    except AssertionError:
        # Says which figure is wrong.
        assert {name: found.get(name) for name in expected} == expected
        assert [name for name in positive if not found.get(name)] == []
    return found


@pytest.mark.long
async def test_api_and_worker(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    api_port, worker_port = free_port(), free_port()
    with serving(database_url, tmp_path, METRICS_PORT=api_port, **SETTINGS) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(database_url, http)
            with working(database_url, tmp_path, METRICS_PORT=worker_port):
                await check_work(world, api_port, worker_port)
            await check_without_a_worker(world, api_port)
            await check_new_processes(server, api_port, tmp_path)
            await check_without_a_database(world, api_port)
        taken = qd("worker", DATABASE_URL=app_url(database_url), METRICS_PORT=str(api_port))
        assert taken.returncode == 2
        assert taken.stderr == f"cannot listen on 127.0.0.1:{api_port}: the address is already in use\n"
    assert list(tmp_path.glob("quarterdeck-metrics-*")) == []


async def check_work(world: World, api_port: int, worker_port: int) -> None:
    sessions = [await world.new_session() for _ in range(4)]
    texts = ("Hello.", "demo: fail", "demo: slow 99", "demo: slow 99")
    pairs = zip(sessions, texts, strict=True)
    runs = [(await world.submit(session, text)).json()["run_id"] for session, text in pairs]
    assert [(await ended(world, run))["state"] for run in runs[:2]] == ["succeeded", "failed"]
    for session in sessions[2:]:
        await started(world, session)
    assert (await world.submit(sessions[2], delivery="queue")).status_code == 200
    assert (await world.post(f"/v1/runs/{runs[3]}/cancel", {})).status_code == 200
    asking = (await world.post("/v1/sessions", {"tool_policy": {"add_note": "ask"}})).json()["id"]
    await world.submit(asking, "note: ask me")
    assert (await world.http.get("/unknown")).status_code == 404
    assert (await world.http.request("BREW", "/v1/sessions")).status_code == 405
    answered = (await world.get(f"/v1/runs/{runs[0]}")).json()
    await reach(
        worker_port,
        {
            "processes worker": 1,
            "runs_ended_total succeeded": 1,
            "runs_ended_total failed": 1,
            "model_failures_total demo": 1,
            "steps_total demo": answered["steps"] + 1,
            "queue_wait_seconds_count": 5,
            "model_request_duration_seconds_count demo": answered["steps"] + 1,
            "runs pending": 1,
            "runs queued": 0,
            "runs running": 1,
            "runs waiting": 1,
            "actions_open approval": 1,
            "actions_open budget": 0,
            "queue_jobs": 0,
            "queue_oldest_seconds": 0,
            "workers": 1,
            "database_up": 1,
        },
        "tokens_total demo input",
        "tokens_total demo output",
        "pool_wait_seconds_count main worker",
    )
    await reach(
        api_port,
        {
            "processes api": 2,
            f"http_requests_total {EVENTS} 200 POST": 6,
            f"http_request_duration_seconds_count {EVENTS} POST": 6,
            "http_requests_total 404 GET unmatched": 1,
            "http_requests_total /v1/sessions 405 other": 1,
            "input_batch_size_sum": 5,
            "runs_ended_total cancelled": 1,
            "retention_deleted_total receipts": 0,
            "workers": 1,
        },
        "retention_sweeps_total succeeded",
        "pool_wait_seconds_count api main",
        "pool_wait_seconds_count api submit",
        "database_connections",
        "database_max_connections",
    )


async def check_without_a_worker(world: World, api_port: int) -> None:
    """Its run is queued again."""
    await reach(api_port, {"workers": 0, "runs queued": 1, "queue_jobs": 1}, "queue_oldest_seconds")
    await world.execute("UPDATE run_jobs SET queued_at = now() - interval '1 hour'")
    assert 3600 <= (await scrape(api_port))["queue_oldest_seconds"] < 7200


async def check_new_processes(server: Server, api_port: int, folder: Path) -> None:
    """The counts of ended processes are kept, and their files are not."""
    before = set(serving_pids(server))
    stop(server, signal.SIGHUP)

    async def replaced() -> bool:
        now = set(serving_pids(server))
        return len(now) == 2 and not now & before

    await eventually(replaced)
    await reach(api_port, {"processes api": 2, f"http_requests_total {EVENTS} 200 POST": 6, "input_batch_size_sum": 5})
    owners = {file.stem.rpartition("_")[2] for file in folder.glob("quarterdeck-metrics-*/*.db")}
    assert owners == {"ended", *map(str, serving_pids(server))}


async def check_without_a_database(world: World, api_port: int) -> None:
    name = str(conninfo_to_dict(world.database_url)["dbname"])
    with psycopg.connect(world.database_url, dbname="postgres", autocommit=True) as outside:
        outside.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = %s"
        outside.execute(terminate, (name, LOGIN))
        assert (await world.get("/v1/sessions")).status_code == 503
        figures = await reach(
            api_port,
            {"database_up": 0, "runs queued": None, "http_requests_total /v1/sessions 503 GET": 1},
            "pool_timeouts_total api main",
            "retention_sweeps_total failed",
        )
        assert figures["processes api"] == 2
        outside.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    await reach(api_port, {"database_up": 1, "runs queued": 1})


@pytest.mark.long
async def test_one_port_for_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = free_port()
    with qd_serve(tmp_path / "data", tmp_path / "output", METRICS_PORT=str(port)) as serve:
        headers = {"Authorization": f"Bearer {serve.exported('QD_KEY')}"}
        async with httpx.AsyncClient(base_url=serve.url, headers=headers, timeout=60) as http:
            session_id = (await http.post("/v1/sessions", json={})).json()["id"]
            await http.post(f"/v1/sessions/{session_id}/events", json={"type": "input", "text": "Hello."})
        await reach(
            port,
            {
                "processes api": 1,
                "processes worker": 1,
                "workers": 1,
                f"http_requests_total {EVENTS} 200 POST": 1,
                "queue_wait_seconds_count": 1,
                "runs_ended_total succeeded": 1,
                "database_up": 1,
            },
        )
    assert list(tmp_path.glob("quarterdeck-metrics-*")) == []
