"""Inputs that come in at every moment of a run's life, runs that fail or are cancelled with inputs left, and the limits
of a run: with a worker of its own and a model in the test's hands."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from quarterdeck.models.context import estimate_tokens
from tests.contract.provider_server import OPENAI, Event, refuses, streams
from tests.fault.stand_in import (
    LAST,
    WRITES,
    Brake,
    Gate,
    StandIn,
    asking,
    call_then_answer,
    new_session,
    walk_to,
)
from tests.workers import at_rest, check_log, ended, log_of, working
from tests.world import PATIENT, START_SECONDS, Server, World, clone_database, drop_database, serving

CONTEXT_TOKENS = 1000
# Small enough to be met by a test that wants to, large enough for all others.
LIMITS = {
    "RUN_MAX_STEPS": 4,
    "RUN_MAX_TOKENS": 1000,
    "MODEL_CONTEXT_TOKENS": CONTEXT_TOKENS,
    "MODEL_COMPACTION": "trim",
}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def door(server: Server) -> Iterator[socket.socket]:
    """With the one worker of this file, which asks whoever is behind it."""
    settings = LIMITS | {"DATABASE_POOL_CONNECTIONS": 20}
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        working(server.database_url, server.data_dir, **asking(door), **settings),
    ):
        yield door


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in


async def submitted(world: World, session_id: str, text: str) -> dict[str, Any]:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def of_type(entries: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["type"] == type_]


async def slip_in(world: World, brake: Brake, write: str, text: str) -> dict[str, Any]:
    """An input that is accepted right after this write and before the next."""
    await walk_to(brake, write)
    submitting = asyncio.create_task(submitted(world, brake.session_id, text))
    # The worker stands first in the queue, the input second: both pass, and the worker's next write waits.
    await brake.let_pass(2)
    return await submitting


# After which write an input comes in: in which request and step it is then, and how many requests there are.
TAKEN_AT = {
    "begin": (2, 2, 2),
    "store call": (2, 2, 2),
    "store result": (2, 2, 2),
    "take again": (3, 3, 3),
    "store answer": (3, 1, 3),
}


async def test_an_input_between_any_two_writes_is_consumed_once(world: World, stand_in: StandIn) -> None:
    """Each session's second input comes in right after the write that the session is named for."""
    sessions = {write: await new_session(world, write) for write in WRITES}
    stand_in.replies |= {write: call_then_answer() for write in WRITES}

    async def steer(write: str) -> tuple[str, dict[str, Any]]:
        async with Brake(world, sessions[write]) as brake:
            hello = asyncio.create_task(submitted(world, sessions[write], "Hello."))
            await brake.let_pass()
            return (await hello)["run_id"], await slip_in(world, brake, write, "Steered.")

    steered = {write: await steer(write) for write in WRITES}
    runs = {write: run_id for write, (run_id, _) in steered.items()}
    answers = {write: answer for write, (_, answer) in steered.items()}
    await at_rest(world, *sessions.values())
    for write, (request, step, requests) in TAKEN_AT.items():
        entries = await log_of(world, sessions[write])
        check_log(entries)
        texts = stand_in.texts(write)
        assert len(texts) == requests, write
        assert texts[: request - 1] == [["Hello."]] * (request - 1), write
        assert texts[request - 1 :] == [["Hello.", "Steered."]] * (requests - request + 1), write
        last = of_type(entries, "input.consumed")[-1]
        assert (last["run_id"], last["data"]["step"]) == (answers[write]["run_id"], step), write
        lives = write != "store answer"
        assert answers[write]["outcome"] == ("steered" if lives else "new_run"), write
        assert (answers[write]["run_id"] == runs[write]) is lives, write
        assert len(of_type(entries, "run.succeeded")) == (1 if lives else 2), write


async def test_a_failed_run_hands_its_inputs_on_in_the_same_transaction(world: World, stand_in: StandIn) -> None:
    gate = Gate()
    stand_in.replies["x"] = [gate.reply(after=refuses(400, OPENAI.error("invalid", "No such thing.")))]
    session_id = await new_session(world, "x")
    run_id = (await submitted(world, session_id, "Hello."))["run_id"]
    await gate.is_reached()
    assert (await submitted(world, session_id, "And more."))["run_id"] == run_id
    async with Brake(world, session_id) as brake:
        gate.opened.set()
        await brake.let_pass()
        # The next run cannot begin as long as the lock is held, so its row is as the failure left it.
        rows = await world.fetch(
            "SELECT xmin::text, id::text, state FROM runs WHERE session_id = %s ORDER BY id", session_id
        )
        [event] = await world.fetch(
            "SELECT xmin::text, data FROM session_events WHERE session_id = %s AND type = 'run.failed'", session_id
        )
        next_run_id = event[1]["next_run_id"]
        assert {(run, state) for _, run, state in rows} == {(run_id, "failed"), (next_run_id, "queued")}
        assert {xmin for xmin, _, _ in rows} == {event[0]}
    assert (await ended(world, next_run_id))["state"] == "succeeded"
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert "No such thing." in run["failure"]
    assert (run["inputs_accepted"], run["inputs_consumed"]) == (2, 1)
    entries = await log_of(world, session_id)
    check_log(entries)
    assert [entry["run_id"] for entry in of_type(entries, "input.consumed")] == [run_id, next_run_id]
    # The provider refused the first request, so the next run leaves its turns out.
    assert stand_in.texts("x") == [["Hello."], ["And more."]]


async def test_cancel_reaches_a_step_in_another_process(world: World, stand_in: StandIn) -> None:
    gate = Gate()
    stand_in.replies["x"] = [gate.reply(OPENAI.text("Half an ", "answer."))]
    session_id = await new_session(world, "x")
    run_id = (await submitted(world, session_id, "Hello."))["run_id"]
    await gate.is_reached()
    await submitted(world, session_id, "Too late.")
    answer: httpx.Response = await world.post(f"/v1/runs/{run_id}/cancel", None)
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    await asyncio.wait_for(gate.client_left.wait(), START_SECONDS)
    entries = await log_of(world, session_id)
    check_log(entries)
    discarded = [entry["data"]["input_id"] for entry in of_type(entries, "input.discarded")]
    assert (
        discarded == answer.json()["discarded_input_ids"] == [of_type(entries, "input.accepted")[1]["data"]["input_id"]]
    )
    # The worker is free for the session's next run at once.
    following = (await submitted(world, session_id, "Again."))["run_id"]
    assert (await ended(world, following))["state"] == "succeeded"
    assert stand_in.texts("x")[-1] == ["Hello.", "Again."]


async def test_session_longer_than_the_context_window_continues(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "x")
    for number in range(5):
        run_id = (await submitted(world, session_id, f"{number}: " + "word " * 250))["run_id"]
        assert (await ended(world, run_id))["state"] == "succeeded"
    entries = await log_of(world, session_id)
    check_log(entries)
    left_out = [entry["data"] for entry in of_type(entries, "context.compacted")]
    # Whole halves of the context, and not a little before each request.
    assert 0 < len(left_out) < 4
    assert [one["dropped_turns"] for one in left_out] == sorted({one["dropped_turns"] for one in left_out})
    assert {one["summary"] for one in left_out} == {""}
    asked = stand_in.asked["x"]
    assert len(asked) == 5
    for number, messages in enumerate(asked):
        assert f"{number}: word" in messages[-1]["content"]
        assert sum(estimate_tokens(str(message["content"])) for message in messages) < CONTEXT_TOKENS
    assert len(asked[-1]) < len(entries)


async def test_smaller_context_window_than_configured_is_detected(world: World, stand_in: StandIn) -> None:
    too_long = refuses(400, OPENAI.error("context_length_exceeded", "maximum context length is 500 tokens"))
    session_id = await new_session(world, "x")
    for text in ("first " * 160, "second " * 160):
        stand_in.replies["x"] = [] if text.startswith("first") else [too_long]
        run_id = (await submitted(world, session_id, text))["run_id"]
        assert (await ended(world, run_id))["state"] == "succeeded"
    assert [len(messages) for messages in stand_in.asked["x"]] == [1, 3, 1]
    entries = await log_of(world, session_id)
    check_log(entries)
    [left_out] = of_type(entries, "context.compacted")
    assert left_out["data"] == {"dropped_turns": 2, "kept_answers": 0, "summary": ""}
    # A model that finds everything too long is given up.
    stand_in.replies["x"] = [too_long] * 9
    run = await ended(world, (await submitted(world, session_id, "third"))["run_id"])
    assert run["state"] == "failed"
    assert "too long" in run["failure"]
    assert len(stand_in.asked["x"]) == 5


def _costly(events: list[Event], tokens: int) -> list[Event]:
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return [
        (name, data | {"usage": usage} if isinstance(data, dict) and "usage" in data else data) for name, data in events
    ]


async def test_limits_end_a_run_with_their_reason(world: World, stand_in: StandIn) -> None:
    calls = [OPENAI.calls("", (f"call_{n}", "current_time", "{}")) for n in range(9)]
    stand_in.replies["steps"] = [streams(events) for events in calls]
    stand_in.replies["tokens"] = [streams(_costly(events, 600)) for events in calls]
    limits = {
        "steps": (4, "The run needed more than 4 steps."),
        "tokens": (2, "The run used more than 1000 tokens."),
    }
    for limit, (steps, reason) in limits.items():
        session_id = await new_session(world, limit)
        run = await ended(world, (await submitted(world, session_id, "Hello."))["run_id"])
        assert (run["state"], run["failure"], run["steps"]) == ("failed", reason, steps)
        assert len(stand_in.asked[limit]) == steps
        entries = await log_of(world, session_id)
        check_log(entries)
        assert [entry["data"] for entry in of_type(entries, "run.failed")] == [{"reason": reason}]


async def test_an_input_at_the_limit_is_left_to_the_next_run(world: World, stand_in: StandIn) -> None:
    """The run that may make no more steps could not show it to the model."""
    gate = Gate()
    stand_in.replies["x"] = [gate.reply(_costly(OPENAI.text("Costly."), 2000))]
    session_id = await new_session(world, "x")
    run_id = (await submitted(world, session_id, "Hello."))["run_id"]
    await gate.is_reached()
    assert (await submitted(world, session_id, "And more."))["run_id"] == run_id
    gate.opened.set()
    await at_rest(world, session_id)
    entries = await log_of(world, session_id)
    check_log(entries)
    [failed] = of_type(entries, "run.failed")
    assert failed["data"]["reason"] == "The run used more than 1000 tokens."
    assert [entry["run_id"] for entry in of_type(entries, "run.succeeded")] == [failed["data"]["next_run_id"]]
    assert stand_in.texts("x") == [["Hello."], ["Hello.", "And more."]]
    assert [entry["data"]["text"] for entry in of_type(entries, "message")] == ["Costly.", LAST]
