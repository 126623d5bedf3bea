"""Conversations that are summarised, and answers that must match a schema: with workers that are killed, and a model in
the test's hands."""

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from quarterdeck.models.context import SUMMARY_INSTRUCTIONS, estimate_tokens
from tests.contract.provider_server import OPENAI, Reply, refuses, streams
from tests.fault.stand_in import LAST, Gate, StandIn, asking, new_session
from tests.workers import check_log, ended, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

CONTEXT_TOKENS = 1000
SETTINGS: dict[str, object] = {
    "MODEL_CONTEXT_TOKENS": CONTEXT_TOKENS,
    "MODEL_OUTPUT_RETRIES": 1,
    "MODEL_REQUEST_RETRIES": 0,
}
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


async def submitted(world: World, session_id: str, text: str) -> str:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def talk(world: World, session_id: str, text: str) -> dict[str, Any]:
    """The run of this input, when it has ended."""
    return await ended(world, await submitted(world, session_id, text))


async def data_of(world: World, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == type_]


def is_summary_request(messages: list[dict[str, Any]]) -> bool:
    return bool(messages[0]["content"] == SUMMARY_INSTRUCTIONS)


def long_call(number: int) -> Reply:
    return streams(OPENAI.calls(f"{number}: " + "thought " * 90, (f"call_{number}", "current_time", "{}")))


@pytest.mark.long
async def test_older_turns_are_summarised_once(world: World, server: Server) -> None:
    session_id = await new_session(world, "x")
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as model:
            asked = model.asked["x"]
            with working(server.database_url, server.data_dir, **asking(door), **SETTINGS) as worker:
                # Its input is in the conversation until it is dropped.
                model.replies["x"] = [refuses(401, OPENAI.error("no", "Wrong key."))]
                failed = await talk(world, session_id, "poison " * 30)
                assert failed["state"] == "failed"
                for number in range(2):
                    assert (await talk(world, session_id, f"{number}: " + "word " * 150))["state"] == "succeeded"
                assert [is_summary_request(messages) for messages in asked] == [False] * 3

                # In the middle of a run: its input stays, the steps before the last one are summarised.
                summary = streams(OPENAI.text("What was <b>before</summary>."))
                model.replies["x"] = [long_call(0), long_call(1), summary, gate.reply(OPENAI.text(LAST))]
                run_id = await submitted(world, session_id, "The task.")
                await gate.is_reached()
                worker.signal(signal.SIGKILL)
                worker.process.wait()
            before = await log_of(world, session_id)
            check_log(before, all_ended=False)
            await take_for_dead(world)
            with working(server.database_url, server.data_dir, **asking(door), **SETTINGS):
                run = await ended(world, run_id)
                assert (run["state"], run["steps"]) == ("succeeded", 4), "the summary is one of the steps"
                assert run["usage"]["input_tokens"] == 4 * 11
                requests = [is_summary_request(messages) for messages in asked]
                assert requests == [False] * 5 + [True, False, False], "after the crash it is not made again"
                assert asked[-1] == asked[-2], "the same conversation, read from the log"
                await check_first_summary(world, session_id, model)
                await check_later_runs(world, session_id, model)


async def check_first_summary(world: World, session_id: str, model: StandIn) -> None:
    [compacted] = await data_of(world, session_id, "context.compacted")
    assert compacted["summary"] == "What was <b>before</summary>."
    # Three inputs and two answers, and of the last run its input, an answer and its result.
    assert (compacted["dropped_turns"], compacted["kept_answers"]) == (8, 1)
    assert not await data_of(world, session_id, "context.trimmed")
    instructions, transcript = model.asked["x"][5]
    assert (instructions["role"], transcript["role"]) == ("system", "user")
    for part in ("poison", "User: 0: word", f"Agent: {LAST}", "Agent calls current_time {}", "Result of current_time"):
        assert part in transcript["content"]
    assert "tools" not in model.bodies["x"][5]
    messages = model.asked["x"][6]
    assert sum(estimate_tokens(str(message)) for message in messages) < CONTEXT_TOKENS
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"], "not in the instructions"
    summary, _, task = messages[0]["content"].rpartition("</summary>")
    assert "What was <b>before</ summary>." in summary
    assert task.strip() == "The task."
    assert messages[1]["content"].startswith("1: thought")


async def check_later_runs(world: World, session_id: str, model: StandIn) -> None:
    asked = model.asked["x"]
    assert (await talk(world, session_id, "And now?"))["state"] == "succeeded"
    forked = (await world.post(f"/v1/sessions/{session_id}/fork", {})).json()
    assert (await talk(world, forked["id"], "And now in the fork?"))["state"] == "succeeded"
    for messages in asked[8:]:
        assert "What was <b>before" in messages[0]["content"]
        assert "poison" not in str(messages)
        assert [message["role"] for message in messages][:3] == ["user", "assistant", "tool"]
    assert len(asked) == 10
    # A summary of what was dropped must not stay: it is made again, without it.
    [dropped, *_] = await data_of(world, session_id, "input.accepted")
    answer = await world.delete(f"/v1/sessions/{session_id}/inputs/{dropped['input_id']}")
    assert answer.status_code < 300, answer.text
    model.replies["x"] = [streams(OPENAI.text("Another summary."))]
    assert (await talk(world, session_id, "And after that?"))["state"] == "succeeded"
    assert [is_summary_request(messages) for messages in asked[10:]] == [True, False]
    assert not any("poison" in str(messages) for messages in asked[10:])
    assert "Another summary." in asked[11][0]["content"]
    # If the model makes no summary, the older turns are cut off.
    model.replies["x"] = [refuses(400, OPENAI.error("no", "I do not summarise."))]
    assert (await talk(world, session_id, "word " * 600))["state"] == "succeeded"
    assert len(await data_of(world, session_id, "context.compacted")) == 2
    assert len(await data_of(world, session_id, "context.trimmed")) == 1
    check_log(await log_of(world, session_id))


@pytest.mark.long
async def test_answers_match_the_output_schema(world: World, server: Server) -> None:
    body = {"model": "openai-chat:y", "sandbox": None, "output_schema": SCHEMA}
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    gate = Gate()
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as model:
            with working(server.database_url, server.data_dir, **asking(door), **SETTINGS) as worker:
                model.replies["y"] = [streams(OPENAI.text('{"answer": "x"}')), gate.reply(OPENAI.text("{}"))]
                run_id = await submitted(world, session_id, "How many?")
                await gate.is_reached()
                worker.signal(signal.SIGKILL)
                worker.process.wait()
            model.replies["y"] = [streams(OPENAI.text('```json\n{"answer": 3}\n```'))]
            await take_for_dead(world)
            with working(server.database_url, server.data_dir, **asking(door), **SETTINGS):
                assert (await ended(world, run_id))["state"] == "succeeded"
                messages = await data_of(world, session_id, "message")
                reason = '$.answer: "x" is not of type "integer".'
                assert [message.get("mismatch") for message in messages] == [reason, None]
                assert json.loads(messages[-1]["text"]) == {"answer": 3}
                assert model.asked["y"][1] == model.asked["y"][2], "the same correction after the crash"
                assert reason in model.asked["y"][2][-1]["content"]
                wanted = model.bodies["y"][0]["response_format"]["json_schema"]["schema"]
                assert wanted["properties"] == SCHEMA["properties"]

                # A server without structured output is told in the instructions. Then it is corrected once.
                no_format = refuses(400, OPENAI.error("invalid", "response_format is not supported"))
                wrong = streams(OPENAI.text("three"))
                model.replies["y"] = [no_format, wrong, no_format, wrong]
                failed = await talk(world, session_id, "How many again?")
                assert failed["state"] == "failed"
                assert failed["failure"].startswith("The answer does not match output_schema. It is not JSON: ")
                assert "response_format" not in model.bodies["y"][-1]
                assert '"required":["answer"]' in model.asked["y"][-1][0]["content"]

                body["model"] = "demo"
                offline = (await world.post("/v1/sessions", body)).json()["id"]
                assert (await talk(world, offline, "How many?"))["state"] == "succeeded"
                assert (await talk(world, offline, 'demo: json {"answer": 1.5}\ndemo: json {"answer": 2}'))["steps"] > 1
                texts = [message["text"] for message in await data_of(world, offline, "message")]
                assert texts[-2:] == ['{"answer": 1.5}', '{"answer": 2}']
                check_log(await log_of(world, offline))
