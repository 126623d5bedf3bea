"""Two workers keep to a limit together, and runs over it wait without a slot."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.provider_server import OPENAI, Reply, Wire, streams
from tests.fault.stand_in import Gate, StandIn, asking, new_session
from tests.workers import ended, eventually, working
from tests.world import World

MODEL = "openai-chat:narrow"
CALL = OPENAI.calls("Let me see.", ("call_1", "current_time", "{}"))


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in


def limited(door: socket.socket, **limit: int) -> dict[str, object]:
    return asking(door) | {"MODEL_LIMITS": json.dumps({MODEL: limit}), "WORKER_CONCURRENCY": 4}


async def run_of(world: World) -> str:
    return (await world.submit(await new_session(world, "narrow"), "Hello.")).json()["run_id"]  # type: ignore[no-any-return]


async def waiting(world: World, run_id: str) -> str:
    async def look() -> Any:
        return (await world.get(f"/v1/runs/{run_id}")).json()["waits_for_model"]

    found: str = await eventually(look, 30)
    return found


class Counted:
    """Replies that take a moment, and how many of them were under way at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def reply(self, then: Reply) -> Reply:
        async def reply(wire: Wire) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.3)
            self.now -= 1
            await then(wire)

        return reply


@pytest.mark.long
async def test_two_workers_keep_to_a_limit(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    """Runs of two workspaces, with two steps each. A third one has a model without a limit."""
    worlds = [await World.create(world.database_url, world.http) for _ in range(3)]
    counted = Counted()
    stand_in.replies["narrow"] = [counted.reply(streams(CALL)) for _ in range(12)]
    stand_in.replies["narrow"] += [counted.reply(streams(OPENAI.text("Done."))) for _ in range(40)]
    settings = limited(door, concurrent=2)
    with working(world.database_url, tmp_path, **settings), working(world.database_url, tmp_path, **settings):
        runs = [(each, await run_of(each)) for each in worlds[:2] for _ in range(6)]
        assert await waiting(*runs[-1]) == MODEL
        other = (await worlds[2].submit(await new_session(worlds[2], "wide"), "Hello.")).json()["run_id"]
        assert (await ended(worlds[2], other, 20))["state"] == "succeeded"
        states = {(await ended(each, run_id, 60))["state"] for each, run_id in runs}
    assert (states, counted.most) == ({"succeeded"}, 2)
    assert await world.fetch("SELECT FROM model_requests") == []


async def test_a_run_over_the_limit_can_be_steered_and_cancelled(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    gate = Gate()
    stand_in.replies["narrow"] = [gate.reply(after=streams(OPENAI.text("Done.")))]
    with working(world.database_url, tmp_path, **limited(door, concurrent=1)):
        first = await run_of(world)
        await gate.is_reached()
        session_id = await new_session(world, "narrow")
        steered = (await world.submit(session_id, "First.")).json()["run_id"]
        cancelled = await run_of(world)
        assert await waiting(world, steered) == await waiting(world, cancelled) == MODEL
        assert (await world.submit(session_id, "Second.")).json()["outcome"] == "steered"
        assert (await world.post(f"/v1/runs/{cancelled}/cancel", {})).json()["state"] == "cancelled"
        gate.opened.set()
        assert [(await ended(world, run_id, 30))["state"] for run_id in (first, steered)] == ["succeeded"] * 2
    assert stand_in.texts("narrow")[-1] == ["First.", "Second."]
    assert len(stand_in.asked["narrow"]) == 2


async def test_a_killed_worker_gives_its_place_back(
    world: World, stand_in: StandIn, door: socket.socket, tmp_path: Path
) -> None:
    gate = Gate()
    stand_in.replies["narrow"] = [gate.reply()]
    with working(world.database_url, tmp_path, **limited(door, concurrent=1)) as worker:
        runs = [await run_of(world) for _ in range(3)]
        await gate.is_reached()
        worker.signal(signal.SIGKILL)
        with working(world.database_url, tmp_path, **limited(door, concurrent=1), WORKER_LEASE_SECONDS=1):
            assert [(await ended(world, run_id, 60))["state"] for run_id in runs] == ["succeeded"] * 3
