"""A provider that takes no more requests for a while: workers leave it alone together, its runs wait and succeed."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.provider_server import OPENAI, Reply, Wire, refuses, send_events
from tests.fault.stand_in import Gate, StandIn, asking, new_session
from tests.workers import ended, eventually, working
from tests.world import World

SLOTS = 4
RUNS = 200
REFUSING_SECONDS = 60
BUSY = refuses(429, OPENAI.error("rate_limit_error", "Slow down"), retry_after="1")


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in


async def run_of(world: World, model: str, text: str = "Hello.") -> str:
    return (await world.submit(await new_session(world, model), text)).json()["run_id"]  # type: ignore[no-any-return]


async def waiting(world: World, run_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        run: dict[str, Any] = (await world.get(f"/v1/runs/{run_id}")).json()
        return run if run["waits_for_model"] else None

    found: dict[str, Any] = await eventually(look)
    return found


@pytest.mark.long
async def test_all_runs_succeed_after_few_requests(
    world: World,
    stand_in: StandIn,
    door: socket.socket,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Runs of three workspaces in two workers. A fourth workspace, with another model, notices nothing."""
    worlds = [await World.create(world.database_url, world.http) for _ in range(4)]
    stand_in.replies["x"] = [BUSY] * 10_000
    settings = asking(door) | {"WORKER_CONCURRENCY": SLOTS}
    began = time.monotonic()
    with working(world.database_url, tmp_path, **settings), working(world.database_url, tmp_path, **settings):
        runs = [(worlds[number % 3], await run_of(worlds[number % 3], "x")) for number in range(RUNS)]
        for each, run_id in runs[:3]:
            assert (await waiting(each, run_id))["state"] == "queued"
        # More runs wait than there are slots, and none holds one.
        assert (await ended(worlds[3], await run_of(worlds[3], "y")))["state"] == "succeeded"
        await asyncio.sleep(began + REFUSING_SECONDS - time.monotonic())
        refused = len(stand_in.asked["x"])
        stand_in.replies["x"] = []
        states = [(await ended(each, run_id, 60))["state"] for each, run_id in runs]
    record_property("requests during the refusal", refused)
    assert states == ["succeeded"] * RUNS
    # Those that were under way at first, and then one after each pause.
    assert refused <= 2 * SLOTS + REFUSING_SECONDS


async def test_a_waiting_run_can_be_steered_and_cancelled(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    stand_in.replies["x"] = [BUSY] * 10_000
    with working(world.database_url, tmp_path, **asking(door)):
        session_id = await new_session(world, "x")
        run_id = (await world.submit(session_id, "First.")).json()["run_id"]
        other = await run_of(world, "x")
        run = await waiting(world, run_id)
        assert (run["state"], run["waits_for_model"]) == ("queued", "openai-chat:x")
        await waiting(world, other)
        assert (await world.submit(session_id, "Second.")).json()["outcome"] == "steered"
        assert (await world.post(f"/v1/runs/{other}/cancel", {})).json()["state"] == "cancelled"
        stand_in.replies["x"] = []
        assert (await ended(world, run_id))["state"] == "succeeded"
    assert stand_in.texts("x")[-1] == ["First.", "Second."]
    assert (await world.get(f"/v1/runs/{other}")).json()["waits_for_model"] is None
    assert await world.fetch("SELECT FROM model_pauses WHERE model = 'openai-chat:x'") == []
    events = (await world.get(f"/v1/sessions/{session_id}/events")).json()["items"]
    reasons = {event["data"]["reason"] for event in events if event["type"] == "run.requeued"}
    assert reasons == {"Waiting for openai-chat:x. openai-chat:x failed with status 429: Slow down."}


async def test_another_run_tries_if_the_first_comes_to_nothing(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    gate = Gate()
    stand_in.replies["x"] = [BUSY, BUSY, gate.reply()]
    settings = asking(door) | {"MODEL_STALL_SECONDS": 1}
    with working(world.database_url, tmp_path, **settings) as first:
        runs = [await run_of(world, "x") for _ in range(2)]
        await gate.is_reached()
        first.signal(signal.SIGKILL)
        with working(world.database_url, tmp_path, **settings, WORKER_LEASE_SECONDS=1):
            assert [(await ended(world, run_id))["state"] for run_id in runs] == ["succeeded"] * 2


async def test_a_run_does_not_wait_for_ever(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    stand_in.replies["x"] = [BUSY] * 10_000
    with working(world.database_url, tmp_path, **asking(door), RUN_MAX_SECONDS=2):
        run = await ended(world, await run_of(world, "x"), 10)
    assert (run["state"], run["failure"]) == ("failed", "The run took longer than 2 seconds.")


def announcing(*headers: str) -> Reply:
    """An answer with these lines in its head."""

    async def reply(wire: Wire) -> None:
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *headers]
        wire.writer.write("\r\n".join([*lines, "", ""]).encode())
        await send_events(wire, OPENAI.text("Done."))
        wire.writer.write(b"0\r\n\r\n")
        await wire.writer.drain()

    return reply


@pytest.mark.long
async def test_all_workers_respect_an_announced_limit(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    last = announcing("x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 8s")
    stand_in.replies["limited"] = [last]
    settings = asking(door) | {"WORKER_CONCURRENCY": SLOTS}
    with working(world.database_url, tmp_path, **settings), working(world.database_url, tmp_path, **settings):
        first = await ended(world, await run_of(world, "limited"))
        # Not before the other worker has looked.
        await asyncio.sleep(1)
        runs = [await run_of(world, "limited") for _ in range(2 * SLOTS)]
        waiting_runs = [await waiting(world, run_id) for run_id in runs[:2]]
        assert len(stand_in.asked["limited"]) == 1
        states = {(await ended(world, run_id))["state"] for run_id in runs}
    assert (first["state"], states) == ("succeeded", {"succeeded"})
    assert {run["waits_for_model"] for run in waiting_runs} == {"openai-chat:limited"}
