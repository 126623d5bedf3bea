"""Workers that die, stop, freeze or lose their database: every acknowledged input is consumed once, and nothing that
was stored is done again."""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from quarterdeck.core.settings import DatabaseSettings
from tests.fault.stand_in import Brake, Gate, StandIn, asking, call_then_answer, new_session
from tests.workers import Worker, at_rest, check_log, ended, eventually, log_of, started, take_for_dead, working
from tests.world import PATIENT, START_SECONDS, Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into. Each test ends its runs."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


def kill(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)
    worker.process.wait()


async def test_a_killed_worker_is_replaced_and_no_step_is_repeated(world: World, server: Server) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "demo: steps 6")).json()["run_id"]
    async with Brake(world, session_id) as brake:
        with working(server.database_url, server.data_dir) as first:
            # To the third step: the first two are stored with their results.
            for _ in range(6):
                await brake.let_pass()
            await brake.waiting()
            kill(first)
    assert (await world.get(f"/v1/runs/{run_id}")).json()["steps"] == 2
    await world.submit(session_id, "While nobody works.")
    before = await log_of(world, session_id)
    await take_for_dead(world)
    with working(server.database_url, server.data_dir):
        run = await ended(world, run_id)
    assert (run["state"], run["attempts"], run["inputs_consumed"]) == ("succeeded", 2, 2)
    entries = await log_of(world, session_id)
    assert entries[: len(before)] == before, "what was stored stays"
    check_log(entries)
    messages = [entry["data"]["text"] for entry in entries if entry["type"] == "message"]
    assert len(messages) == run["steps"]
    assert "run.requeued" in [entry["type"] for entry in entries]


@pytest.mark.long
@pytest.mark.parametrize("impatient", [False, True], ids=["told_once", "told_again_and_again"])
async def test_a_stopped_worker_hands_its_runs_back_at_once(world: World, server: Server, impatient: bool) -> None:
    """In the middle of an answer. Its lease would last for longer than is waited here."""
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as stand_in:
            stand_in.replies["x"] = [gate.reply(), *call_then_answer()]
            session_id = await new_session(world, "x")
            with working(server.database_url, server.data_dir, **asking(door), WORKER_LEASE_SECONDS=600) as first:
                run_id = (await world.submit(session_id)).json()["run_id"]
                await gate.is_reached()
                first.signal(signal.SIGTERM)
                while impatient and first.process.poll() is None:
                    first.signal(signal.SIGTERM)
                    await asyncio.sleep(0.002)
                # Told again when it has nothing left to do but end, it ends by the signal.
                code = await asyncio.to_thread(first.process.wait, START_SECONDS)
                assert code in ((0, -signal.SIGTERM) if impatient else (0,))
            assert (await world.get(f"/v1/runs/{run_id}")).json()["state"] == "queued"
            with working(server.database_url, server.data_dir, **asking(door), WORKER_LEASE_SECONDS=600):
                run = await ended(world, run_id)
    assert (run["state"], run["attempts"]) == ("succeeded", 2)
    check_log(await log_of(world, session_id))


@pytest.mark.long
async def test_failing_queue_is_restarted_with_pauses(postgres_url: str, template: str, tmp_path: Path) -> None:
    url = clone_database(postgres_url, template)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"REVOKE ALL ON app.run_jobs FROM {DatabaseSettings().role}".encode())
    with working(url, tmp_path) as worker:

        async def failures(count: int) -> float:
            async def look() -> float:
                there = worker.log.read_text().count("the queue is not reachable") >= count
                return time.monotonic() if there else 0.0

            return float(await eventually(look))

        first = await failures(1)
        # Four pauses of half a second, less the moment that the first was seen late.
        assert await failures(5) - first > 1.5
    drop_database(postgres_url, url)


async def test_a_worker_that_wakes_up_can_no_longer_write(world: World, server: Server) -> None:
    session_id = await world.new_session()
    # It may fall asleep in a transaction: PostgreSQL ends that after so long, and gives the session free.
    with working(server.database_url, server.data_dir, DATABASE_STATEMENT_SECONDS=4) as sleeper:
        run_id = (await world.submit(session_id, "demo: slow 1")).json()["run_id"]
        await started(world, session_id)
        sleeper.signal(signal.SIGSTOP)
        await take_for_dead(world)
        with working(server.database_url, server.data_dir):
            assert (await ended(world, run_id))["state"] == "succeeded"
            settled = await log_of(world, session_id)
            sleeper.signal(signal.SIGCONT)
            await eventually(lambda: _gave_up(sleeper))
            assert await log_of(world, session_id) == settled
            again = (await world.submit(session_id, "Still usable.")).json()
            assert (await ended(world, again["run_id"]))["state"] == "succeeded"
    check_log(await log_of(world, session_id))


async def _gave_up(worker: Worker) -> bool:
    """It has found out that its run went on without it: by a write, by being told or, if its connection was ended while
    it slept, by its job being somebody else's."""
    said = worker.log.read_text()
    return any(
        words in said for words in ("run went on without this attempt", "run was cancelled", "Job was not found")
    )


@pytest.mark.long
async def test_run_that_crashes_its_workers_fails(world: World, server: Server) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id, "demo: slow 60")).json()["run_id"]
    for attempt in (1, 2):
        with working(server.database_url, server.data_dir, RUN_BARREN_ATTEMPTS=2) as worker:
            await _attempt_begins(world, run_id, attempt)
            kill(worker)
        await take_for_dead(world)
    with working(server.database_url, server.data_dir, RUN_BARREN_ATTEMPTS=2):
        run = await ended(world, run_id)
    assert (run["state"], run["attempts"]) == ("failed", 2)
    assert "2 times in a row" in run["failure"]


async def _attempt_begins(world: World, run_id: str, attempt: int) -> None:
    await eventually(lambda: world.fetch("SELECT FROM runs WHERE id = %s AND attempt = %s", run_id, attempt))


async def test_a_run_without_a_job_gets_one(world: World, server: Server) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id)).json()["run_id"]
    await world.execute("DELETE FROM run_jobs")
    with working(server.database_url, server.data_dir):
        assert (await ended(world, run_id))["state"] == "succeeded"


@pytest.mark.long
async def test_a_queued_run_can_be_cancelled_and_is_never_started(world: World, server: Server) -> None:
    session_id = await world.new_session()
    run_id = (await world.submit(session_id)).json()["run_id"]
    answer = (await world.post(f"/v1/runs/{run_id}/cancel", None)).json()
    assert (answer["state"], len(answer["discarded_input_ids"])) == ("cancelled", 1)
    assert await world.fetch("SELECT FROM run_jobs WHERE run_id = %s", run_id) == []
    with working(server.database_url, server.data_dir):
        next_run_id = (await world.submit(session_id)).json()["run_id"]
        assert (await ended(world, next_run_id))["state"] == "succeeded"
    assert (await world.get(f"/v1/runs/{run_id}")).json()["attempts"] == 0
    check_log(await log_of(world, session_id))


# How the number of active runs changes at these times.
CHANGES = {"started_at": 1, "finished_at": -1}


@pytest.mark.long
async def test_runs_beyond_the_cap_wait_for_a_slot_and_get_it_without_a_sweep(world: World, server: Server) -> None:
    sessions = [await world.new_session() for _ in range(5)]
    settings = {"RUN_ACTIVE_PER_WORKSPACE": 2, "WORKER_SWEEP_SECONDS": 600}
    with working(server.database_url, server.data_dir, **settings):
        runs = [(await world.submit(session, "demo: slow 0.6")).json()["run_id"] for session in sessions]
        times = [await ended(world, run_id) for run_id in runs]
    assert {run["state"] for run in times} == {"succeeded"}
    active = most = 0
    # Who ends makes room before who starts takes it.
    changes = [(datetime.fromisoformat(run[name]), change) for run in times for name, change in CHANGES.items()]
    for _, change in sorted(changes):
        active += change
        most = max(most, active)
    assert most == 2


@pytest.mark.long
async def test_a_thousand_inputs_racing_the_end_of_runs(world: World, server: Server) -> None:
    """The demo model answers at once, so runs end all the time while inputs come in."""
    sessions = [await world.new_session() for _ in range(20)]
    with (
        working(server.database_url, server.data_dir),
        working(server.database_url, server.data_dir),
    ):

        async def talk(session_id: str) -> None:
            for number in range(50):
                answer = await world.submit(session_id, f"input {number}")
                assert answer.status_code == 200, answer.text
                await asyncio.sleep(0.01 * (number % 4))
                if number == 10:
                    # On a busy machine the workers may only be up now.
                    await at_rest(world, session_id)

        await asyncio.gather(*map(talk, sessions))
        await at_rest(world, *sessions)
    for session_id in sessions:
        entries = await log_of(world, session_id)
        check_log(entries)
        assert sum(entry["type"] == "input.consumed" for entry in entries) == 50
        assert len({entry["run_id"] for entry in entries}) > 1, "runs ended in between"


@pytest.mark.long
async def test_inputs_survive_workers_that_are_killed_all_the_time(world: World, server: Server) -> None:
    sessions = [await world.new_session() for _ in range(10)]
    stop = asyncio.Event()

    async def talk(session_id: str) -> None:
        for number in range(15):
            assert (await world.submit(session_id, f"input {number}\ndemo: slow 0.1")).status_code == 200
            await asyncio.sleep(0.3)

    async def kill_and_start() -> None:
        while not stop.is_set():
            with working(server.database_url, server.data_dir, WORKER_LEASE_SECONDS=1) as worker:
                await asyncio.sleep(1.5)
                if not stop.is_set():
                    kill(worker)

    killing = [asyncio.create_task(kill_and_start()) for _ in range(2)]
    await asyncio.gather(*map(talk, sessions))
    stop.set()
    await asyncio.gather(*killing)
    with working(server.database_url, server.data_dir, WORKER_LEASE_SECONDS=1, RUN_BARREN_ATTEMPTS=100):
        await at_rest(world, *sessions)
    for session_id in sessions:
        check_log(await log_of(world, session_id))
