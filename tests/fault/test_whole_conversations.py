"""What the model is sent when features meet: forks that are cut anywhere, retries, steered inputs with large results.
With a worker of its own and a model in the test's hands."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from tests.contract.provider_server import OPENAI, Reply, refuses, streams
from tests.fault.stand_in import StandIn, asking
from tests.fault.waiting import open_actions, resolve
from tests.workers import check_log, ended, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

CONTEXT_TOKENS = 2000
LOOKUP = {"name": "look_up", "description": "Find it.", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def door(server: Server) -> Iterator[socket.socket]:
    """With the one worker of this file."""
    settings: dict[str, object] = {"MODEL_REQUEST_RETRIES": 0, "MODEL_CONTEXT_TOKENS": CONTEXT_TOKENS}
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        working(server.database_url, server.data_dir, **settings, **asking(door)),
    ):
        yield door


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in
        for asked in stand_in.asked.values():
            for messages in asked:
                check_request(messages)


def check_request(messages: list[dict[str, Any]]) -> None:
    """What strict providers require: no empty message, each call followed by its result, and no two messages of the
    user or of the model in a row."""
    open_calls: list[str] = []
    last = None
    for message in messages:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in open_calls, messages
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls, messages
            assert role != last, messages
        calls = [call["id"] for call in message.get("tool_calls") or []]
        assert message.get("content") or calls, messages
        open_calls += calls
        last = role
    assert not open_calls, messages
    assert last in ("user", "tool"), messages


async def new_session(world: World, model: str, **fields: Any) -> str:
    body = {"model": f"openai-chat:{model}", "workspace": "none", "client_tools": [LOOKUP], **fields}
    answer = await world.post("/v1/sessions", body)
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def start(world: World, session_id: str, text: str) -> str:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def talk(world: World, session_id: str, text: str) -> dict[str, Any]:
    """The run of this input, when it has ended."""
    return await ended(world, await start(world, session_id, text))


async def fork(world: World, session_id: str, before_event_id: int) -> str:
    answer = await world.post(f"/v1/sessions/{session_id}/fork", {"before_event_id": before_event_id})
    assert answer.status_code == 201, answer.text
    fork_id: str = answer.json()["id"]
    return fork_id


_numbers = count(1)


def calls(text: str, *names: str) -> Reply:
    return streams(OPENAI.calls(text, *((f"call_{next(_numbers)}", name, "{}") for name in names)))


UNAVAILABLE = refuses(503, OPENAI.error("unavailable", "Not now."))


@pytest.mark.long
@pytest.mark.parametrize("text", ["Let me see.", ""], ids=["text", "no text"])
async def test_a_fork_cut_at_any_event_has_whole_exchanges(world: World, stand_in: StandIn, text: str) -> None:
    model = f"cut-{len(text)}"
    session_id = await new_session(world, model)
    stand_in.replies[model] = [
        calls(text, "current_time", "look_up", "current_time"),
        calls(text, "current_time"),
        UNAVAILABLE,
    ]
    run_id = await start(world, session_id, "task")
    [action] = await open_actions(world, run_id)
    await world.submit(session_id, "steered")
    await resolve(world, action, result="Ada")
    assert (await ended(world, run_id))["state"] == "failed"
    await talk(world, session_id, "second task")
    log = await log_of(world, session_id)
    assert {"message", "tool.call", "tool.result", "action.required", "action.resolved", "run.failed"} <= {
        entry["type"] for entry in log
    }
    stand_in.asked[model].clear()

    async def go_on(event: dict[str, Any]) -> None:
        forked = await fork(world, session_id, event["id"])
        assert (await talk(world, forked, f"next {event['id']}"))["state"] == "succeeded"
        check_log(await log_of(world, forked))

    for at in range(0, len(log), 4):
        await asyncio.gather(*map(go_on, log[at : at + 4]))
    assert len(stand_in.asked[model]) == len(log)
