"""Runs whose model is asked by the batch interfaces of its provider: they wait without a worker, and survive the loss
of one at every point."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from genai_prices import Usage, calc_price

from tests.batch_provider import AT_ONCE, BY_BATCH, BatchProvider
from tests.contract.provider_server import OPENAI as CHAT
from tests.contract.provider_server import provider as chat_provider
from tests.contract.provider_server import streams
from tests.fault.stand_in import Brake
from tests.workers import check_log, ended, eventually, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

# A worker imports the libraries of the providers, which takes seconds of processor time.
pytestmark = pytest.mark.long

OPENAI, ANTHROPIC = "openai:gpt-5", "anthropic:claude-sonnet-4-5"
both = pytest.mark.parametrize("model", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A database of its own: workers look after all batches of theirs."""
    url = clone_database(postgres_url, template)
    keys = {"MODEL_OPENAI_API": "responses", "MODEL_OPENAI_API_KEY": "k", "MODEL_ANTHROPIC_API_KEY": "k"}
    with serving(url, tmp_path_factory.mktemp("data"), **keys, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        world = await World.create(server.database_url, http)
        await world.execute("DELETE FROM batch_requests")
        await world.execute("DELETE FROM model_batches")
        yield world


@pytest.fixture
async def provider() -> AsyncIterator[BatchProvider]:
    async with BatchProvider.running() as provider:
        yield provider


async def new_session(world: World, model: str, **fields: Any) -> str:
    answer = await world.post("/v1/sessions", {"model": model, "sandbox": None, **fields})
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def submit(world: World, session_id: str, text: str = "What time is it?", **fields: Any) -> str:
    body = {"type": "input", "text": text, "priority": "batch", **fields}
    answer = await world.post(f"/v1/sessions/{session_id}/events", body)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def start(world: World, model: str, text: str = "What time is it?") -> str:
    return await submit(world, await new_session(world, model), text)


async def waiting(world: World, run_id: str, steps: int = 0) -> dict[str, Any]:
    """Until the run waits for a batch after so many steps."""

    async def look() -> dict[str, Any] | None:
        run: dict[str, Any] = (await world.get(f"/v1/runs/{run_id}")).json()
        assert run["state"] in ("queued", "running"), run
        return run if run["waits_for_batch_since"] and run["steps"] == steps else None

    found: dict[str, Any] = await eventually(look)
    return found


async def succeeded(world: World, run_id: str) -> dict[str, Any]:
    run = await ended(world, run_id)
    assert run["state"] == "succeeded", run
    assert run["waits_for_batch_since"] is None
    check_log(await log_of(world, run["session_id"]))
    return run


async def answers(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "message"]


async def reasons(world: World, session_id: str) -> list[str]:
    return [entry["data"]["reason"] for entry in await log_of(world, session_id) if entry["type"] == "run.requeued"]


@both
async def test_a_run_of_two_steps(world: World, provider: BatchProvider, tmp_path: Path, model: str) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings):
        run = await waiting(world, run_id := await start(world, model))
        assert (run["state"], run["priority"], run["steps"]) == ("queued", "batch", 0)

        async def has_no_job() -> bool:
            return await world.fetch("SELECT FROM run_jobs WHERE run_id = %s", run_id) == []

        # The worker deletes it a moment after the run has begun to wait.
        await eventually(has_no_job)
        provider.status = "completed"
        run = await succeeded(world, run_id)
    assert await answers(world, run["session_id"]) == ["", BY_BATCH]
    assert provider.requests == [f"{run_id}-1", f"{run_id}-2"]
    assert provider.at_once == []
    assert await reasons(world, run["session_id"]) == [f"Waiting for a batch of {model}."] * 2
    assert 0 < run["waited_seconds"] < 60
    tokens = run["usage"]["input_tokens"], run["usage"]["output_tokens"]
    usage = Usage(input_tokens=tokens[0], cache_read_tokens=run["usage"]["cached_tokens"], output_tokens=tokens[1])
    price = calc_price(usage, model.partition(":")[2], provider_id=model.partition(":")[0]).total_price
    assert round(Decimal(str(run["usage"]["cost_usd"])), 10) == round(price / 2, 10)
    for table in ("batch_requests", "model_batches"):
        assert await world.fetch(f"SELECT FROM {table}") == []


async def test_requests_of_several_runs_travel_together(world: World, provider: BatchProvider, tmp_path: Path) -> None:
    other = await World.create(world.database_url, world.http)
    settings = provider.settings | {"MODEL_BATCH_COLLECT_SECONDS": 1, "WORKER_CONCURRENCY": 8}
    with working(world.database_url, tmp_path, **settings):
        runs = [(each, await start(each, model)) for each in (world, other) for model in (OPENAI, ANTHROPIC) * 2]
        for each, run_id in runs:
            await succeeded(each, run_id)
    assert len(provider.requests) == 16
    # Of both models, and of both steps. A slow machine may take longer to ask.
    assert len(provider.batches) <= 6


@both
async def test_a_waiting_run_is_steered(world: World, provider: BatchProvider, tmp_path: Path, model: str) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings):
        session_id = await new_session(world, model)
        await waiting(world, run_id := await submit(world, session_id, "First."))
        answer = (await world.submit(session_id, "Second.")).json()
        assert answer == {"outcome": "steered", "run_id": run_id}
        provider.status = "completed"
        await succeeded(world, run_id)
    entries = await log_of(world, session_id)
    kinds = [entry["type"] for entry in entries if entry["type"] in ("input.consumed", "message", "tool.result")]
    assert kinds == ["input.consumed", "message", "tool.result", "input.consumed", "message"]
    assert [("Second." in str(body)) for batch in provider.batches.values() for body in batch.requests.values()] == [
        False,
        True,
    ]


@both
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
async def test_a_cancelled_run(world: World, provider: BatchProvider, tmp_path: Path, model: str, shared: bool) -> None:
    """The batch is cancelled if nobody else needs it. Otherwise the answer is dropped, and its cost is counted."""
    provider.status = "in_progress"
    settings = provider.settings | {"MODEL_BATCH_COLLECT_SECONDS": 1 if shared else 0.1}
    with working(world.database_url, tmp_path, **settings):
        others = [await start(world, model)] if shared else []
        run_id = await start(world, model)
        await waiting(world, run_id)

        async def created() -> bool:
            return f"{run_id}-1" in provider.requests

        await eventually(created)
        assert (await world.post(f"/v1/runs/{run_id}/cancel", {})).json()["state"] == "cancelled"
        if shared:
            provider.status = "completed"
            for other in others:
                await succeeded(world, other)

        async def over() -> bool:
            return not await world.fetch("SELECT FROM batch_requests UNION ALL SELECT FROM model_batches")

        await eventually(over)
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["steps"], run["waits_for_batch_since"]) == ("cancelled", 0, None)
    assert provider.calls["cancel"] == (0 if shared else 1)
    assert (run["usage"]["cost_usd"] is not None) == shared
    counted = await world.fetch("SELECT FROM run_usage WHERE run_id = %s AND cost_usd > 0", run_id)
    assert len(counted) == shared


async def test_a_deleted_session_cancels_its_batch(world: World, provider: BatchProvider, tmp_path: Path) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings):
        session_id = await new_session(world, ANTHROPIC)
        await waiting(world, await submit(world, session_id))

        async def created() -> bool:
            return bool(await world.fetch("SELECT FROM model_batches WHERE handle IS NOT NULL"))

        await eventually(created)
        assert (await world.delete(f"/v1/sessions/{session_id}")).status_code == 204

        async def over() -> bool:
            return not await world.fetch("SELECT FROM batch_requests UNION ALL SELECT FROM model_batches")

        await eventually(over)
    assert provider.calls["cancel"] == 1


@both
@pytest.mark.parametrize("why", ["expired", "errored"])
async def test_a_request_without_an_answer_is_asked_at_once(
    world: World, provider: BatchProvider, tmp_path: Path, model: str, why: str
) -> None:
    if why == "expired":
        provider.status = "expired"
    else:
        provider.failing = ["What time"]
    with working(world.database_url, tmp_path, **provider.settings):
        run = await succeeded(world, await start(world, model))
    assert await answers(world, run["session_id"]) == [AT_ONCE]
    assert len(provider.at_once) == 1
    _, reason = await reasons(world, run["session_id"])
    said = "was expired before the model ran it" if why == "expired" else "No such thing"
    assert said in reason
    assert reason.endswith("The model is asked in the ordinary way.")


async def test_a_batch_that_takes_too_long_is_given_up(world: World, provider: BatchProvider, tmp_path: Path) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings, MODEL_BATCH_MAX_SECONDS=1):
        run = await succeeded(world, await start(world, OPENAI))
    assert await answers(world, run["session_id"]) == [AT_ONCE]
    assert provider.calls["cancel"] == 1


async def test_a_run_may_wait_for_longer_than_it_may_take(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings, RUN_MAX_SECONDS=30):
        await waiting(world, run_id := await start(world, OPENAI))
        for column in ("started_at", "waits_for_batch_since"):
            await world.execute(f"UPDATE runs SET {column} = {column} - interval '1 hour' WHERE id = %s", run_id)
        provider.status = "completed"
        assert (await succeeded(world, run_id))["waited_seconds"] > 3600


async def test_a_worker_is_lost_before_the_batch_is_sent(world: World, provider: BatchProvider, tmp_path: Path) -> None:
    settings = provider.settings | {"MODEL_BATCH_COLLECT_SECONDS": 600}
    with working(world.database_url, tmp_path, **settings) as first:
        await waiting(world, run_id := await start(world, OPENAI))
        first.signal(signal.SIGKILL)
    await take_for_dead(world)
    with working(world.database_url, tmp_path, **provider.settings):
        await succeeded(world, run_id)
    assert provider.requests == [f"{run_id}-1", f"{run_id}-2"]


@both
@pytest.mark.parametrize("held", ["create", "look", "results"])
async def test_a_worker_is_lost_while_it_asks_the_provider(
    world: World, provider: BatchProvider, tmp_path: Path, model: str, held: str
) -> None:
    """Only a batch whose creation was not answered is created again: nobody knows its name."""
    stop = provider.hold(held)
    with working(world.database_url, tmp_path, **provider.settings) as first:
        run_id = await start(world, model)
        await stop.is_reached()
        first.signal(signal.SIGKILL)
    await take_for_dead(world)
    await world.execute("UPDATE model_batches SET look_at = now()")
    with working(world.database_url, tmp_path, **provider.settings):
        run = await succeeded(world, run_id)
    assert run["steps"] == 2
    assert len(provider.batches) == (3 if held == "create" else 2)


async def test_a_worker_is_lost_before_it_stores_the_answer(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    stop = provider.hold("results")
    with working(world.database_url, tmp_path, **provider.settings) as first:
        run_id = await submit(world, session_id := await new_session(world, OPENAI))
        await stop.is_reached()
        async with Brake(world, session_id) as brake:
            stop.opened.set()
            await brake.waiting()
            first.signal(signal.SIGKILL)
            await brake.drop_waiting()
    await take_for_dead(world)
    await world.execute("UPDATE model_batches SET look_at = now()")
    with working(world.database_url, tmp_path, **provider.settings):
        assert (await succeeded(world, run_id))["steps"] == 2
    assert len(provider.batches) == 2


async def test_a_worker_that_stops_stores_what_it_creates(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    stop = provider.hold("create")
    with working(world.database_url, tmp_path, **provider.settings) as first:
        run_id = await start(world, OPENAI)
        await stop.is_reached()
        first.signal(signal.SIGTERM)
        stop.opened.set()
        await asyncio.to_thread(first.process.wait, 30)
    with working(world.database_url, tmp_path, **provider.settings):
        await succeeded(world, run_id)
    assert len(provider.batches) == 2


async def test_a_worker_that_wakes_up_too_late_cancels_what_it_created(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    provider.status = "in_progress"
    stop = provider.hold("create")
    with working(world.database_url, tmp_path, **provider.settings) as first:
        run_id = await start(world, ANTHROPIC)
        await stop.is_reached()
        first.signal(signal.SIGSTOP)
        await world.execute("UPDATE model_batches SET look_at = now()")
        with working(world.database_url, tmp_path, **provider.settings):
            await take_for_dead(world)

            async def created_again() -> bool:
                return len(await world.fetch("SELECT FROM model_batches WHERE handle IS NOT NULL")) == 1

            await eventually(created_again)
            first.signal(signal.SIGCONT)
            stop.opened.set()

            async def cancelled() -> bool:
                return provider.calls["cancel"] == 1

            await eventually(cancelled)
            provider.status = "completed"
            run = await succeeded(world, run_id)
    assert [batch.status for batch in provider.batches.values()] == ["cancelled", "completed", "completed"]
    assert run["steps"] == 2


async def test_a_job_that_a_lost_worker_left_changes_nothing(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    provider.status = "in_progress"
    with working(world.database_url, tmp_path, **provider.settings):
        run = await waiting(world, run_id := await start(world, OPENAI))
        await world.execute("SELECT enqueue_run(%s, %s)", run["session_id"], run_id)

        async def taken() -> bool:
            return not await world.fetch("SELECT FROM run_jobs WHERE run_id = %s", run_id)

        await eventually(taken)
        assert (await waiting(world, run_id))["attempts"] == run["attempts"]
        provider.status = "completed"
        await succeeded(world, run_id)
    assert len(provider.batches) == 2


async def test_a_model_that_has_no_batches_any_longer_is_asked_at_once(
    world: World, provider: BatchProvider, tmp_path: Path
) -> None:
    """The log says so."""
    run_id = await start(world, OPENAI)
    async with chat_provider(streams(CHAT.text("Hello."))) as chat:
        # It takes the place of OpenAI.
        settings = provider.settings | {"MODEL_ENDPOINTS": f"openai={chat.url}/v1"}
        with working(world.database_url, tmp_path, **settings):
            run = await succeeded(world, run_id)
    assert provider.batches == {}
    ignored = [e["data"] for e in await log_of(world, run["session_id"]) if e["type"] == "settings.ignored"]
    assert ignored == [{"model": OPENAI, "settings": ["priority"]}]
