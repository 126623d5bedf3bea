"""Another model answers while the first one is not available."""

import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.provider_server import (
    ANTHROPIC,
    OPENAI,
    Dialect,
    Reply,
    does_not_answer,
    falls_silent,
    refuses,
    resets,
    streams,
)
from tests.fault.stand_in import LAST, Gate, StandIn, asking
from tests.workers import ended, eventually, log_of, working
from tests.world import World

TIME_LIMIT = 60


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


@pytest.fixture
async def stand_in(world: World, door: socket.socket) -> AsyncIterator[StandIn]:
    # Tests share the database, and use the same names of models.
    await world.execute("DELETE FROM model_pauses")
    async with StandIn.running(door) as stand_in:
        yield stand_in


def settings(door: socket.socket) -> dict[str, object]:
    """Of a worker for which the stand-in is both providers."""
    address = f"http://127.0.0.1:{door.getsockname()[1]}"
    anthropic = {"MODEL_ANTHROPIC_BASE_URL": address, "MODEL_ANTHROPIC_API_KEY": "sk-ant-test"}
    return asking(door) | anthropic | {"MODEL_STALL_SECONDS": 8, "MODEL_REQUEST_RETRIES": 1}


async def session_with(world: World, *models: str) -> str:
    """The API of the tests has no key for Anthropic, but the worker has."""
    session_id: str = (await world.post("/v1/sessions", {"sandbox": None})).json()["id"]
    change = "UPDATE sessions SET model = %s, fallback_models = %s WHERE id = %s"
    await world.execute(change, models[0], list(models[1:]), session_id)
    return session_id


async def started(world: World, session_id: str) -> str:
    return (await world.submit(session_id, "Hello.")).json()["run_id"]  # type: ignore[no-any-return]


async def switches(world: World, session_id: str) -> list[tuple[str, str, str]]:
    log = await log_of(world, session_id)
    found = [entry["data"] for entry in log if entry["type"] == "model.switched"]
    return [(data["from"], data["to"], data["reason"]) for data in found]


def broken(dialect: Dialect) -> Reply:
    return refuses(500, dialect.error("api_error", "Broken"))


def failures(dialect: Dialect) -> dict[str, tuple[Reply, str]]:
    """Kinds of errors after which another model answers, and what their reasons begin with."""
    busy = dialect.error("overloaded_error", "Busy")
    text = dialect.text("Half of an", " answer")[: -dialect.closing]
    quota = {"error": {"message": "Pay first", "type": "insufficient_quota", "code": "insufficient_quota"}}
    statuses = {
        str(status): (refuses(status, busy, retry_after="20"), f"failed with status {status}")
        for status in (429, 503, 529, 500)
    }
    others = {
        "stall": (falls_silent(text), "was silent for 8 seconds."),
        "reset": (resets(text), ""),
        "no-answer": (does_not_answer(), ""),
    }
    if dialect is OPENAI:
        others["quota"] = (refuses(429, quota), "failed with status 429: Pay first.")
    return statuses | others


@pytest.mark.long
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
async def test_another_model_answers(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path, dialect: Dialect
) -> None:
    provider = dialect.model.partition(":")[0]
    kinds = failures(dialect)
    for kind, (reply, _) in kinds.items():
        stand_in.replies[kind] = [reply] * 20
    sessions = {kind: await session_with(world, f"{provider}:{kind}", "openai-chat:other") for kind in kinds}
    with working(world.database_url, tmp_path, **settings(door)):
        runs = {kind: await started(world, session_id) for kind, session_id in sessions.items()}
        for kind, run_id in runs.items():
            run = await ended(world, run_id, TIME_LIMIT)
            assert (kind, run["state"]) == (kind, "succeeded")
            assert (run["model"], run["answered_by"]) == ("openai-chat:other", ["openai-chat:other"])
            [(before, after, reason)] = await switches(world, sessions[kind])
            assert (before, after) == (f"{provider}:{kind}", "openai-chat:other")
            assert before in reason
            assert kinds[kind][1] in reason
    # Each was asked once, and the text of broken answers is in no log.
    assert {kind: len(stand_in.asked[kind]) for kind in kinds} == dict.fromkeys(kinds, 1)
    for session_id in sessions.values():
        texts = [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "message"]
        assert texts == [LAST]


async def test_no_other_model_answers_what_was_refused(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    statuses = (400, 401, 403, 404, 422)
    for status in statuses:
        stand_in.replies[str(status)] = [refuses(status, OPENAI.error("invalid_request_error", "No"))] * 5
    with working(world.database_url, tmp_path, **settings(door)):
        for status in statuses:
            session_id = await session_with(world, f"openai-chat:{status}", "openai-chat:other")
            run = await ended(world, await started(world, session_id), TIME_LIMIT)
            assert (run["state"], run["answered_by"]) == ("failed", [])
            assert await switches(world, session_id) == []
    assert stand_in.asked["other"] == []


async def test_the_first_model_answers_again_after_the_cool_down(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    stand_in.replies["a"] = [broken(OPENAI)]
    call = streams(OPENAI.calls("Let me see.", ("call_1", "current_time", "{}")))
    stand_in.replies["b"] = [call]
    models = ("openai-chat:a", "openai-chat:b")
    with working(world.database_url, tmp_path, **settings(door), MODEL_COOL_DOWN_SECONDS=600):
        session_id = await session_with(world, *models)
        run = await ended(world, await started(world, session_id), TIME_LIMIT)
        # All runs leave it alone, and those without another model do not wait for it.
        others = [await session_with(world, *models) for _ in range(3)]
        other_runs = [await ended(world, await started(world, other), TIME_LIMIT) for other in others]
        assert {tuple(other["answered_by"]) for other in other_runs} == {("openai-chat:b",)}
        assert (run["answered_by"], len(stand_in.asked["a"])) == (["openai-chat:b"], 1)
        assert len(stand_in.asked["b"]) == 5
        await world.execute("UPDATE model_pauses SET until = now() WHERE model = 'openai-chat:a'")
        assert (await ended(world, await started(world, session_id), TIME_LIMIT))["answered_by"] == ["openai-chat:a"]
        [_] = await switches(world, session_id)
        assert await world.fetch("SELECT FROM model_pauses WHERE model = 'openai-chat:a'") == []


async def test_a_run_goes_back_between_two_steps(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    gate = Gate()
    stand_in.replies["a"] = [broken(OPENAI)]
    stand_in.replies["b"] = [gate.reply(after=streams(OPENAI.calls("", ("call_1", "current_time", "{}"))))]
    with working(world.database_url, tmp_path, **settings(door) | {"MODEL_STALL_SECONDS": 30}):
        session_id = await session_with(world, "openai-chat:a", "openai-chat:b")
        run_id = await started(world, session_id)
        await gate.is_reached()
        await world.execute("UPDATE model_pauses SET until = now()")
        gate.opened.set()
        run = await ended(world, run_id, TIME_LIMIT)
    assert (run["model"], run["answered_by"]) == ("openai-chat:a", ["openai-chat:b", "openai-chat:a"])
    found = await switches(world, session_id)
    assert found == [
        ("openai-chat:a", "openai-chat:b", "openai-chat:a failed with status 500: Broken."),
        ("openai-chat:b", "openai-chat:a", "openai-chat:a is available again."),
    ]


async def test_a_run_waits_while_all_its_models_are_refused(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    """And goes on with the first one that is free, which need not be the one it waits for by name."""
    busy = refuses(429, OPENAI.error("rate_limit_error", "Slow down"), retry_after="1")
    stand_in.replies["a"] = stand_in.replies["b"] = [busy] * 1000
    with working(world.database_url, tmp_path, **settings(door)):
        session_id = await session_with(world, "openai-chat:a", "openai-chat:b")
        run_id = await started(world, session_id)

        async def waits() -> Any:
            return (await world.get(f"/v1/runs/{run_id}")).json()["waits_for_model"]

        assert await eventually(waits) == "openai-chat:a"
        stand_in.replies["b"] = []
        run = await ended(world, run_id, TIME_LIMIT)
    assert (run["state"], run["answered_by"]) == ("succeeded", ["openai-chat:b"])


async def test_a_run_fails_if_all_its_models_fail(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    """Its request may be what they fail with: other runs with these models must not wait for it."""
    stand_in.replies["a"] = stand_in.replies["b"] = [broken(OPENAI)] * 4
    with working(world.database_url, tmp_path, **settings(door)):
        session_id = await session_with(world, "openai-chat:a", "openai-chat:b")
        run = await ended(world, await started(world, session_id), TIME_LIMIT)
        assert run["failure"] == "openai-chat:a failed with status 500: Broken. Tried 2 times."
        other = await ended(world, await started(world, await session_with(world, "openai-chat:a", "openai-chat:b")))
        assert (other["state"], other["answered_by"]) == ("succeeded", ["openai-chat:a"])


async def test_usage_is_counted_for_the_model_that_answered(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    first, second = "openai:gpt-4o", "anthropic:claude-sonnet-4-5"
    call = streams(OPENAI.calls("Let me see.", ("call_1", "current_time", "{}")))
    stand_in.replies["gpt-4o"] = [call, broken(OPENAI)]
    stand_in.replies["claude-sonnet-4-5"] = [streams(ANTHROPIC.text(LAST))]
    with working(world.database_url, tmp_path, **settings(door)):
        session_id = await session_with(world, first, second)
        run = await ended(world, await started(world, session_id), TIME_LIMIT)
    assert (run["state"], run["steps"], run["answered_by"]) == ("succeeded", 2, [first, second])
    items = (await world.get("/v1/usage?group_by=model")).json()["items"]
    assert {item["group"]: item["runs"] for item in items} == {first: 1, second: 1}
    assert all(item["cost_usd"] > 0 for item in items)
    assert sum(item["cost_usd"] for item in items) == pytest.approx(run["usage"]["cost_usd"])
    [day] = (await world.get("/v1/usage?group_by=day")).json()["items"]
    assert (day["runs"], day["input_tokens"]) == (1, run["usage"]["input_tokens"])


async def test_a_killed_worker_loses_no_step(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    gate = Gate()
    stand_in.replies["a"] = [streams(OPENAI.calls("", ("call_1", "current_time", "{}"))), broken(OPENAI)]
    stand_in.replies["b"] = [gate.reply()]
    patient = settings(door) | {"MODEL_STALL_SECONDS": 30}
    with working(world.database_url, tmp_path, **patient) as worker:
        session_id = await session_with(world, "openai-chat:a", "openai-chat:b")
        run_id = await started(world, session_id)
        await gate.is_reached()
        worker.signal(signal.SIGKILL)
        with working(world.database_url, tmp_path, **patient, WORKER_LEASE_SECONDS=1):
            run = await ended(world, run_id, TIME_LIMIT)
    assert (run["state"], run["steps"]) == ("succeeded", 2)
    assert run["answered_by"] == ["openai-chat:a", "openai-chat:b"]
    # The stored step is not asked again, and the switch is not logged twice.
    assert (len(stand_in.asked["a"]), len(stand_in.asked["b"])) == (2, 2)
    assert len(await switches(world, session_id)) == 1
