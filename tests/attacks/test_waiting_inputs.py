"""One session token sends inputs faster than its run consumes them. The run is bounded, so that it can always be worked
on, cancelled and deleted; and so can runs that were filled before there was a bound."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.processes import peak_mib, resident_mib, serving_pids
from tests.workers import at_rest, check_log, ended, log_of, started, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, error_of, serving

# Length of the JSON text, with room for the rest of the body.
LARGE = 1024 * 1024 - 1024
MAX_GROWTH_MIB = 64
# As many as the client has connections: for requests that wait for one the client's cost grows with the square of their
# number.
AT_ONCE = 100
_FILL_RUN = """
WITH run AS (
    INSERT INTO runs (id, session_id, workspace_id, state, first_input, last_input, consumed_through, inputs_accepted)
    SELECT uuidv7(), id, workspace_id, 'queued', 1, 1, 0, %s FROM sessions WHERE id = %s RETURNING id, session_id
), events AS (
    INSERT INTO session_events (session_id, run_id, type, data)
    SELECT session_id, id, 'input.accepted',
           jsonb_build_object('input_id', gen_random_uuid(), 'text', n || ': ' || repeat('x', %s))
    FROM run, generate_series(1, %s) n RETURNING id
)
SELECT id FROM run
"""
_SET_LAST_INPUT = """
UPDATE runs SET last_input = (SELECT max(id) FROM session_events WHERE session_id = runs.session_id),
                consumed_through = (SELECT min(id) - 1 FROM session_events WHERE session_id = runs.session_id)
WHERE id = %s
"""
_ADD_CONSUMED = """
WITH accepted AS (
    INSERT INTO session_events (session_id, type, data)
    SELECT %s, 'input.accepted', jsonb_build_object('input_id', gen_random_uuid(), 'text', repeat('x', %s))
    FROM generate_series(1, %s)
    RETURNING id, session_id, data->>'input_id' AS input_id
)
INSERT INTO session_events (session_id, type, data, input_event_id)
SELECT session_id, 'input.consumed', jsonb_build_object('input_id', input_id), id FROM accepted ORDER BY id
"""


@pytest.fixture
def shipped(postgres_url: str, template: str, tmp_path: Path) -> Iterator[Server]:
    """An API process with default settings."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def attacker(shipped: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=shipped.url, timeout=60) as http:
        yield await World.create(shipped.database_url, http)


@pytest.fixture
async def neighbour(shipped: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=shipped.url, timeout=60) as http:
        yield await World.create(shipped.database_url, http)


async def fill_run(world: World, session_id: str, inputs: int, text_bytes: int) -> str:
    """A run with more inputs than the bounds allow."""
    [(run_id,)] = await world.fetch(_FILL_RUN, inputs, session_id, text_bytes, inputs)
    await world.execute(_SET_LAST_INPUT, run_id)
    return str(run_id)


async def sent_until_refused(world: World, session_id: str, token: str, text: str) -> tuple[int, httpx.Response]:
    """The number of accepted inputs, which are numbered, and the first refusal."""
    for number in range(10_000):
        answer = await world.submit(session_id, f"{number} {text}", key=token)
        if answer.status_code != 200:
            return number, answer
    raise AssertionError("never refused")


def of_type(entries: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["type"] == type_]


def texts(entries: list[dict[str, Any]], type_: str) -> list[str]:
    """The first words of the inputs that such events are about."""
    accepted = of_type(entries, "input.accepted")
    of_inputs = {entry["data"]["input_id"]: entry["data"]["text"].split(" ")[0] for entry in accepted}
    return [of_inputs[entry["data"]["input_id"]] for entry in of_type(entries, type_)]


async def counts(world: World, session_id: str) -> list[int]:
    tables = ("SELECT FROM session_events WHERE session_id = %s", "SELECT FROM receipts WHERE scope_id = %s")
    return [len(await world.fetch(table, session_id)) for table in tables]


async def is_served(world: World) -> bool:
    session_id = await world.new_session()
    answers = [await world.submit(session_id), await world.get(f"/v1/sessions/{session_id}/events")]
    return [answer.status_code for answer in answers] == [200, 200]


@pytest.mark.long
async def test_large_inputs_are_refused_and_none_is_lost(attacker: World, neighbour: World, shipped: Server) -> None:
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    accepted, refusal = await sent_until_refused(attacker, session_id, token, "x" * LARGE)
    assert accepted == 8
    assert error_of(refusal) == (429, "too_many_requests")
    assert int(refusal.headers["retry-after"]) > 0
    assert "waiting" in refusal.json()["error"]["message"]
    before = await counts(attacker, session_id)
    keyed = {"key": token, "idempotency_key": "k"}
    # Below the text that may wait for the database in one process: above it the answer is 503.
    many = [attacker.submit(session_id, "x" * LARGE, **keyed) for _ in range(10)]
    assert {answer.status_code for answer in await asyncio.gather(*many)} == {429}
    assert await counts(attacker, session_id) == before, "a refusal left something"
    assert await is_served(neighbour)
    with working(shipped.database_url, shipped.data_dir):
        await at_rest(attacker, session_id)
    # The key was not used up.
    assert (await attacker.submit(session_id, "8 small", **keyed)).status_code == 200
    with working(shipped.database_url, shipped.data_dir):
        await at_rest(attacker, session_id)
    entries = await log_of(attacker, session_id)
    check_log(entries)
    assert texts(entries, "input.consumed") == [str(number) for number in range(9)]
    steps = {entry["data"]["step"] for entry in of_type(entries, "input.consumed")}
    assert len(steps) == 8, "one large input for each step, and the first of the next run"


@pytest.mark.long
async def test_many_small_inputs_are_refused(attacker: World, neighbour: World) -> None:
    session_id = await attacker.new_session()
    token = await attacker.new_token(session_id)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def submit() -> int:
        async with at_once:
            return (await attacker.submit(session_id, "x", key=token)).status_code

    statuses = await asyncio.gather(*(submit() for _ in range(1_100)))
    assert sorted(set(statuses)) == [200, 429]
    assert statuses.count(200) == 1_000
    [(accepted, unconsumed_bytes)] = await attacker.fetch(
        "SELECT inputs_accepted, unconsumed_bytes FROM runs WHERE session_id = %s", UUID(session_id)
    )
    assert (accepted, unconsumed_bytes) == (1_000, 1_000)
    assert await is_served(neighbour)
    run_id = (await attacker.get(f"/v1/sessions/{session_id}/runs")).json()["items"][0]["id"]
    cancelled = await attacker.post(f"/v1/runs/{run_id}/cancel", None, key=token)
    assert (cancelled.status_code, len(cancelled.json()["discarded_input_ids"])) == (200, 1_000)
    # The next run has the whole bound again.
    assert (await attacker.submit(session_id, key=token)).json()["outcome"] == "new_run"
    check_log(await log_of(attacker, session_id), all_ended=False)
    assert (await attacker.delete(f"/v1/sessions/{session_id}")).status_code == 204


SMALL = {"SUBMIT_RUN_WAITING_INPUTS": 10, "SUBMIT_RUN_WAITING_BYTES": 100}
EXACT = [
    (["x"] * 12, [200] * 10 + [429] * 2),
    # Only what fits: a smaller one behind a refused one is accepted. Bytes count, not characters.
    (["x" * 60, "y" * 41, "z" * 40, "a"], [200, 429, 200, 429]),
    (["ä" * 50, "x"], [200, 429]),
    # An input that is larger than the bound is accepted if no other one waits.
    (["x" * 1000, "y"], [200, 429]),
    ([""] * 11, [200] * 10 + [429]),
]


@pytest.mark.long
async def test_the_bounds_are_exact(postgres_url: str, template: str, tmp_path: Path) -> None:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path, **SMALL, **PATIENT) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(url, http)
            for inputs, expected in EXACT:
                session_id = await world.new_session()
                answers = [await world.submit(session_id, text) for text in inputs]
                assert [answer.status_code for answer in answers] == expected
                stored = [status for status in expected if status == 200]
                assert len(await log_of(world, session_id)) == len(stored)
            # All at once: no more than the bound.
            session_id = await world.new_session()
            answers = await asyncio.gather(*(world.submit(session_id, str(number)) for number in range(40)))
            assert [answer.status_code for answer in answers].count(200) == 10
            with working(url, tmp_path, RUN_STEP_INPUT_BYTES=1):
                await at_rest(world, session_id)
            entries = await log_of(world, session_id)
            check_log(entries)
            assert texts(entries, "input.consumed") == texts(entries, "input.accepted")
            assert [entry["data"]["step"] for entry in of_type(entries, "input.consumed")] == list(range(1, 11))
            # The run has consumed everything, so the next one has the whole bound.
            assert (await world.submit(session_id, "x" * 100)).status_code == 200
    drop_database(postgres_url, url)


@pytest.mark.long
@pytest.mark.parametrize(("inputs", "text_bytes"), [(700, 1024 * 1024), (23_000, 1)])
async def test_a_run_that_was_filled_before_ends(
    attacker: World, neighbour: World, shipped: Server, inputs: int, text_bytes: int
) -> None:
    """By a cancellation, by the deletion of its session, and by a worker."""
    cancelled, deleted, worked = [await attacker.new_session() for _ in range(3)]
    run_id = await fill_run(attacker, cancelled, inputs, text_bytes)
    idle_mib = resident_mib(shipped)
    answer = await attacker.post(f"/v1/runs/{run_id}/cancel", None)
    assert answer.status_code == 200, answer.text
    growth_mib = sum(peak_mib(pid) for pid in serving_pids(shipped)) - idle_mib
    assert growth_mib < MAX_GROWTH_MIB, "the cancellation cost too much memory"
    rows = await attacker.fetch(
        "SELECT data->>'input_id' FROM session_events WHERE session_id = %s AND type = 'input.accepted' ORDER BY id",
        UUID(cancelled),
    )
    assert answer.json()["discarded_input_ids"] == [input_id for (input_id,) in rows]
    ends = await attacker.fetch(
        "SELECT type, count(*) FROM session_events WHERE session_id = %s GROUP BY type", UUID(cancelled)
    )
    assert dict(ends) == {"input.accepted": inputs, "input.discarded": inputs, "run.cancelled": 1}
    assert await is_served(neighbour)

    await fill_run(attacker, deleted, inputs, text_bytes)
    assert (await attacker.delete(f"/v1/sessions/{deleted}")).status_code == 204

    await fill_run(attacker, worked, min(inputs, 8_000), text_bytes)
    with working(shipped.database_url, shipped.data_dir, RUN_MAX_TOKENS=10**9, RUN_MAX_STEPS=10_000):
        await started(attacker, worked)
        if text_bytes == 1:
            await at_rest(attacker, worked)
        run = (await attacker.get(f"/v1/sessions/{worked}/runs")).json()["items"][0]
        assert (await attacker.post(f"/v1/runs/{run['id']}/cancel", None)).status_code == 200
    [(ended_once,)] = await attacker.fetch(
        "SELECT count(DISTINCT data->>'input_id') = count(*) AND count(*) = %s FROM session_events"
        " WHERE session_id = %s AND type IN ('input.consumed', 'input.discarded')",
        min(inputs, 8_000),
        UUID(worked),
    )
    assert ended_once


@pytest.mark.long
async def test_a_worker_needs_little_memory_for_a_long_session(attacker: World, shipped: Server) -> None:
    """400 old inputs of 1 MiB, of which few fit into the context of a model."""
    warm_up, session_id = await attacker.new_session(), await attacker.new_session()
    await attacker.execute(_ADD_CONSUMED, UUID(session_id), 1024 * 1024, 400)
    with working(shipped.database_url, shipped.data_dir) as worker:
        await ended(attacker, (await attacker.submit(warm_up)).json()["run_id"])
        idle_mib = peak_mib(worker.process.pid)
        run = await ended(attacker, (await attacker.submit(session_id, "short")).json()["run_id"])
        growth_mib = peak_mib(worker.process.pid) - idle_mib
    assert run["state"] == "succeeded"
    assert growth_mib < MAX_GROWTH_MIB
    [(trimmed,)] = await attacker.fetch(
        "SELECT data->>'dropped_turns' FROM session_events WHERE session_id = %s AND type = 'context.trimmed' LIMIT 1",
        UUID(session_id),
    )
    assert trimmed == "400"
