"""What the model is sent when features meet: forks that are cut anywhere, retries, steered inputs with large results.
With a worker of its own and a model in the test's hands."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core.settings import BlobSettings, DatabaseSettings, Settings
from quarterdeck.db.database import Database
from quarterdeck.models.context import CUT, estimate_tokens
from quarterdeck.retention import delete_expired
from tests.contract.provider_server import OPENAI, Reply, refuses, streams
from tests.fault.stand_in import Gate, StandIn, asking
from tests.fault.waiting import open_actions, resolve
from tests.workers import check_log, ended, log_of, working
from tests.world import PATIENT, Server, World, app_url, clone_database, drop_database, serving

CONTEXT_TOKENS = 2000
STEP_INPUT_BYTES = 400
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
    settings: dict[str, object] = {
        "MODEL_REQUEST_RETRIES": 0,
        "MODEL_CONTEXT_TOKENS": CONTEXT_TOKENS,
        "RUN_STEP_INPUT_BYTES": STEP_INPUT_BYTES,
    }
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
    body = {"model": f"openai-chat:{model}", "sandbox": None, "client_tools": [LOOKUP], **fields}
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


UNAVAILABLE = refuses(500, OPENAI.error("unavailable", "Not now."))


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


async def retry(world: World, run: dict[str, Any]) -> dict[str, Any]:
    answer = await world.post(f"/v1/runs/{run['id']}/retry", None)
    assert answer.status_code == 201, answer.text
    return await ended(world, answer.json()["id"])


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def is_time(result: str) -> bool:
    return result.endswith("UTC")


async def test_a_retry_goes_on_after_the_answers_of_the_failed_run(world: World, stand_in: StandIn) -> None:
    """Also a retry of the retry, and a second retry of the first run: every request has the input once, and the result
    that is stored."""
    session_id = await new_session(world, "again")
    stand_in.replies["again"] = [calls("Let me see.", "current_time"), UNAVAILABLE, UNAVAILABLE, UNAVAILABLE]
    run = await talk(world, session_id, "task")
    second = await retry(world, run)
    assert (run["state"], second["state"]) == ("failed", "failed")
    assert (await retry(world, second))["state"] == "failed"
    assert (await retry(world, run))["state"] == "succeeded"
    await talk(world, session_id, "next")
    *first, last = stand_in.asked["again"]
    assert stand_in.texts("again") == [["task"]] * 5 + [["task", "next"]]
    assert all(messages == first[1] for messages in first[1:]), "the same request each time"
    assert is_time(results(last)[0])
    log = await log_of(world, session_id)
    check_log(log)
    accepted = [entry["data"] for entry in log if entry["type"] == "input.accepted"]
    assert [data.get("copy_of") for data in accepted] == [None, *[accepted[0]["input_id"]] * 3, None]
    markdown = (await world.get(f"/v1/sessions/{session_id}/export", headers={"Accept": "text/markdown"})).text
    assert markdown.count("sent again by a retry") == 3


async def test_a_retry_after_other_runs_asks_again(world: World, stand_in: StandIn) -> None:
    """Another run was answered meanwhile: the input is shown where it was sent again, and only there."""
    session_id = await new_session(world, "later")
    stand_in.replies["later"] = [calls("Let me see.", "current_time"), UNAVAILABLE]
    run = await talk(world, session_id, "task")
    await talk(world, session_id, "other")
    assert (await retry(world, run))["state"] == "succeeded"
    await talk(world, session_id, "next")
    removed = "(an earlier message was removed)"
    assert stand_in.texts("later")[2:] == [
        ["task", "other"],
        [removed, "other", "task"],
        [removed, "other", "task", "next"],
    ]
    assert all(map(is_time, results(stand_in.asked["later"][-1])))


async def test_a_retry_of_a_refused_run_shows_its_results_again(world: World, stand_in: StandIn) -> None:
    """If it is refused again, the session goes on without what was refused."""
    session_id = await new_session(world, "refused")
    refusal = refuses(400, OPENAI.error("invalid_request_error", "I do not take this."))
    stand_in.replies["refused"] = [calls("Let me see.", "current_time"), refusal, refusal]
    run = await talk(world, session_id, "task")
    second = await retry(world, run)
    assert second["state"] == "failed"
    await talk(world, session_id, "next")
    assert [is_time(results(messages)[0]) for messages in stand_in.asked["refused"][1:]] == [True, True, False]
    assert "left out" in results(stand_in.asked["refused"][-1])[0]
    assert stand_in.texts("refused") == [["task"]] * 3 + [["task", "next"]]
    assert (await retry(world, second))["state"] == "succeeded"
    assert is_time(results(stand_in.asked["refused"][-1])[0])
    assert sorted(stand_in.texts("refused")[-1]) == ["(an earlier message was removed)", "next", "task"]


async def test_a_retry_shows_inputs_that_were_never_read(world: World, stand_in: StandIn) -> None:
    """Steered inputs that the cancellation discarded are read by the retry."""
    session_id = await new_session(world, "cancelled")
    stand_in.replies["cancelled"] = [calls("Let me see.", "look_up")]
    run_id = await start(world, session_id, "task")
    await open_actions(world, run_id)
    await world.submit(session_id, "steered")
    cancelled = (await world.post(f"/v1/runs/{run_id}/cancel", None)).json()
    assert (await retry(world, cancelled))["state"] == "succeeded"
    await talk(world, session_id, "next")
    assert stand_in.texts("cancelled")[1:] == [["task", "steered"], ["task", "steered", "next"]]
    assert "may have taken effect" in results(stand_in.asked["cancelled"][-1])[0]


async def test_a_retry_of_a_run_that_answered_and_was_steered(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "steered")
    gate = Gate()
    stand_in.replies["steered"] = [gate.reply(OPENAI.text("Yes.")), UNAVAILABLE]
    run_id = await start(world, session_id, "task")
    await gate.is_reached()
    await world.submit(session_id, "steered")
    gate.opened.set()
    assert (await retry(world, await ended(world, run_id)))["state"] == "succeeded"
    assert stand_in.texts("steered") == [["task"], ["task", "steered"], ["task", "steered"]]


async def test_an_input_is_dropped_with_the_inputs_that_it_repeats(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "dropped")
    stand_in.replies["dropped"] = [UNAVAILABLE] * 3
    run = await talk(world, session_id, "task")
    await retry(world, await retry(world, run))
    *_, copy = [entry for entry in await log_of(world, session_id) if entry["type"] == "input.accepted"]
    assert (await world.delete(f"/v1/sessions/{session_id}/inputs/{copy['data']['input_id']}")).status_code == 204
    await talk(world, session_id, "next")
    assert stand_in.texts("dropped")[-1] == ["next"]
    check_log(await log_of(world, session_id))


async def test_a_retry_whose_inputs_are_read_in_portions(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "portions")
    gate = Gate()
    stand_in.replies["portions"] = [gate.reply(after=calls("Let me see.", "current_time")), UNAVAILABLE]
    first, second = "a" * STEP_INPUT_BYTES, "b" * STEP_INPUT_BYTES
    run_id = await start(world, session_id, first)
    await gate.is_reached()
    await world.submit(session_id, second)
    gate.opened.set()
    assert (await retry(world, await ended(world, run_id)))["state"] == "succeeded"
    assert stand_in.texts("portions") == [[first], [first, second], [first, second]]
    await talk(world, session_id, "next")
    assert stand_in.texts("portions")[3:] == [[first, second, "next"]]


async def test_a_retry_after_answers_that_did_not_match(world: World, stand_in: StandIn) -> None:
    """The corrections of the failed run do not count."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    session_id = await new_session(world, "json", output_schema=schema)
    stand_in.replies["json"] = [streams(OPENAI.text("wrong"))] * 10
    run = await talk(world, session_id, "task")
    assert run["state"] == "failed"
    stand_in.replies["json"] = [streams(OPENAI.text('{"n": 1}'))]
    assert (await retry(world, run))["state"] == "succeeded"
    [*_, last] = stand_in.asked["json"]
    assert sum(message["content"].split("\n\n").count("task") for message in last) == 1


async def test_a_retried_input_is_shown_when_its_original_has_expired(
    world: World, server: Server, stand_in: StandIn
) -> None:
    session_id = await new_session(world, "expired")
    stand_in.replies["expired"] = [calls("Let me see.", "current_time"), UNAVAILABLE, UNAVAILABLE, UNAVAILABLE]
    run = await talk(world, session_id, "task")
    second = await retry(world, run)
    await retry(world, run)
    await expire(world, server, run["id"])
    assert (await retry(world, second))["state"] == "succeeded"
    await talk(world, session_id, "next")
    assert stand_in.texts("expired")[4:] == [["task"], ["task", "next"]]


async def expire(world: World, server: Server, run_id: str) -> None:
    """Deletes the events of a run as retention does."""
    for statement in (
        "UPDATE session_events SET created_at = created_at - interval '40 days' WHERE run_id = %s",
        "UPDATE runs SET finished_at = finished_at - interval '40 days' WHERE id = %s",
    ):
        await world.execute(statement, run_id)
    assert (await world.patch("/v1/workspace", {"retention": {"event_days": 30}})).status_code == 200
    database = Database(app_url(server.database_url), DatabaseSettings())
    await database.open()
    await delete_expired(database, open_blob_store(BlobSettings(), server.data_dir), Settings())
    await database.close()
    assert not await world.fetch("SELECT FROM session_events WHERE run_id = %s", run_id)


@pytest.mark.long
async def test_forks_of_a_retried_conversation_show_each_input_once(world: World, stand_in: StandIn) -> None:
    """Cut at every event, also between an input and its copy."""
    session_id = await new_session(world, "forked")
    stand_in.replies["forked"] = [calls("Let me see.", "current_time"), UNAVAILABLE, UNAVAILABLE]
    run = await talk(world, session_id, "task")
    second = await retry(world, run)
    assert (await retry(world, second))["state"] == "succeeded"
    log = await log_of(world, session_id)
    stand_in.asked["forked"].clear()
    read = next(at for at, entry in enumerate(log) if entry["type"] == "input.consumed")
    for at, entry in enumerate(log):
        await talk(world, await fork(world, session_id, entry["id"]), "next")
        assert stand_in.texts("forked")[-1] == (["next"] if at <= read else ["task", "next"])
    # The original is dropped: its copies are inputs of their own, of which one is shown.
    original = next(entry["data"]["input_id"] for entry in log if entry["type"] == "input.accepted")
    assert (await world.delete(f"/v1/sessions/{session_id}/inputs/{original}")).status_code == 204
    await talk(world, session_id, "last")
    assert sorted(stand_in.texts("forked")[-1]) == ["(an earlier message was removed)", "last", "task"]


async def test_a_steered_input_leaves_the_task_and_its_results(world: World, stand_in: StandIn) -> None:
    """Seven results that together exceed the context: what must go is cut inside of them."""
    model = "large"
    session_id = await new_session(world, model)
    stand_in.replies[model] = [streams(OPENAI.text("Hello.")), calls("Let me see.", *["look_up"] * 7)]
    await talk(world, session_id, "greeting")
    run_id = await start(world, session_id, "task")
    actions = await open_actions(world, run_id, 7)
    assert (await world.submit(session_id, "Please answer in French.")).json()["outcome"] == "steered"
    for number, action in enumerate(actions):
        await resolve(world, action, result=f"begin {number} " + "x" * 4000 + f" end {number}")
    assert (await ended(world, run_id))["state"] == "succeeded"
    request = stand_in.asked[model][2]
    assert roles(request) == ["user", "assistant", *["tool"] * 7, "user"]
    assert (request[0]["content"], request[-1]["content"]) == ("task", "Please answer in French.")
    for number, result in enumerate(results(request)):
        assert result.startswith(f"begin {number} ")
        assert CUT in result
        assert result.endswith(f" end {number}")
    assert sum(estimate_tokens(str(message["content"])) for message in request) < CONTEXT_TOKENS
    [trimmed] = [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "context.trimmed"]
    assert trimmed == {"dropped_turns": 2, "cut_turns": 7}
