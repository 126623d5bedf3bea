"""Conversations that are repaired: refused requests, inputs that are withdrawn or dropped, and forks. With a worker of
its own and a model in the test's hands."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core.settings import BlobSettings, DatabaseSettings, Settings
from quarterdeck.db.database import Database
from quarterdeck.retention import delete_expired
from tests.contract.provider_server import OPENAI, Reply, refuses, streams
from tests.fault.stand_in import FIRST, LAST, Gate, StandIn, asking, call_then_answer, new_session
from tests.workers import at_rest, check_log, ended, log_of, working
from tests.world import PATIENT, Server, World, app_url, clone_database, drop_database, error_of, serving

MAX_EVENTS = 300
NO_RESULT = "Not carried out: the run ended before."


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), FORK_MAX_EVENTS=MAX_EVENTS, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def door(server: Server) -> Iterator[socket.socket]:
    """With the one worker of this file, which asks whoever is behind it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        working(server.database_url, server.data_dir, MODEL_REQUEST_RETRIES=0, **asking(door)),
    ):
        yield door


@pytest.fixture
async def stand_in(door: socket.socket) -> AsyncIterator[StandIn]:
    async with StandIn.running(door) as stand_in:
        yield stand_in


def refusal(status: int = 400) -> Reply:
    return refuses(status, OPENAI.error("invalid_request_error", "I do not take this."))


async def talk(world: World, session_id: str, text: str) -> dict[str, Any]:
    """The run of this input, when it has ended."""
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text
    return await ended(world, answer.json()["run_id"])


def of_type(entries: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["type"] == type_]


async def test_a_session_goes_on_after_a_refused_message(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "refuses")
    stand_in.replies["refuses"] = [streams(OPENAI.text("One.")), refusal()]
    assert (await talk(world, session_id, "first"))["state"] == "succeeded"
    assert (await talk(world, session_id, "poison"))["state"] == "failed"
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    assert stand_in.texts("refuses") == [["first"], ["first", "poison"], ["first", "next"]]
    log = await log_of(world, session_id)
    check_log(log)
    assert of_type(log, "run.failed")[0]["data"]["refused_by_provider"] is True
    assert not of_type(log, "context.trimmed"), "nothing was too long"


async def test_a_session_goes_on_without_what_has_expired(world: World, server: Server, stand_in: StandIn) -> None:
    session_id = await new_session(world, "forgets")
    first = await talk(world, session_id, "first")
    second = await talk(world, session_id, "second")
    before = (await world.get(f"/v1/sessions/{session_id}")).json()["usage"]
    for statement in (
        "UPDATE session_events SET created_at = created_at - interval '40 days' WHERE run_id = %s",
        "UPDATE runs SET finished_at = finished_at - interval '40 days' WHERE id = %s",
    ):
        await world.execute(statement, first["id"])
    assert (await world.patch("/v1/workspace", {"retention": {"run_days": 30}})).status_code == 200
    database = Database(app_url(server.database_url), DatabaseSettings())
    await database.open()
    deleted = await delete_expired(database, open_blob_store(BlobSettings(), server.data_dir), Settings())
    await database.close()
    assert deleted.runs == 1
    assert error_of(await world.get(f"/v1/runs/{first['id']}")) == (404, "not_found")
    log = await log_of(world, session_id)
    assert {entry["run_id"] for entry in log} == {second["id"]}
    check_log(log)
    assert (await talk(world, session_id, "third"))["state"] == "succeeded"
    assert stand_in.texts("forgets") == [["first"], ["first", "second"], ["second", "third"]]
    after = (await world.get(f"/v1/sessions/{session_id}")).json()["usage"]
    assert after["output_tokens"] > before["output_tokens"], "the usage of deleted runs still counts"


@pytest.mark.parametrize("status", [500, 401])
async def test_turns_stay_when_the_message_was_not_refused(world: World, stand_in: StandIn, status: int) -> None:
    model = f"away-{status}"
    session_id = await new_session(world, model)
    stand_in.replies[model] = [refusal(status)]
    assert (await talk(world, session_id, "first"))["state"] == "failed"
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    assert stand_in.texts(model) == [["first"], ["first", "next"]]
    assert "refused_by_provider" not in of_type(await log_of(world, session_id), "run.failed")[0]["data"]


async def test_only_the_turns_since_the_last_answer_are_left_out(world: World, stand_in: StandIn) -> None:
    """The second request is refused, perhaps because of the tool's result: the answer with its call stays."""
    session_id = await new_session(world, "later")
    stand_in.replies["later"] = [*call_then_answer()[:1], refusal()]
    assert (await talk(world, session_id, "first"))["state"] == "failed"
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    user, assistant, tool, last = stand_in.asked["later"][-1]
    assert (user["content"], assistant["content"], last["content"]) == ("first", FIRST, "next")
    left_out = "The result of this call is left out: the provider refused a request with it."
    assert tool == {"role": "tool", "tool_call_id": "call_1", "content": left_out}


async def send(world: World, session_id: str, text: str, delivery: str) -> str:
    """The id of the new run."""
    body = {"type": "input", "text": text, "delivery": delivery}
    answer = (await world.post(f"/v1/sessions/{session_id}/events", body)).json()
    assert answer["outcome"] == "new_run"
    run_id: str = answer["run_id"]
    return run_id


async def test_a_refused_message_stays_left_out_when_a_pending_run_is_cancelled(
    world: World, stand_in: StandIn
) -> None:
    session_id = await new_session(world, "pending")
    gate = Gate()
    stand_in.replies["pending"] = [gate.reply(after=refusal())]
    running = asyncio.create_task(talk(world, session_id, "poison"))
    await gate.is_reached()
    pending_id = await send(world, session_id, "later", "queue")
    assert (await world.post(f"/v1/runs/{pending_id}/cancel", None)).status_code == 200
    gate.opened.set()
    assert (await running)["state"] == "failed"
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    assert stand_in.texts("pending") == [["poison"], ["next"]]


async def test_a_refused_message_of_an_interrupted_run_is_left_out_too(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "interrupted")
    gate = Gate()
    stand_in.replies["interrupted"] = [gate.reply(after=refusal()), refusal()]
    running = asyncio.create_task(talk(world, session_id, "poison"))
    await gate.is_reached()
    interrupting_id = await send(world, session_id, "instead", "interrupt")
    assert (await running)["state"] == "cancelled"
    gate.opened.set()
    assert (await ended(world, interrupting_id))["state"] == "failed"
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    assert stand_in.texts("interrupted") == [["poison"], ["poison", "instead"], ["next"]]


async def test_the_model_sees_inputs_once_that_are_retried_twice(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "retried")
    stand_in.replies["retried"] = [refusal(500), refusal(500)]
    run = await talk(world, session_id, "hello")
    for state in ("failed", "succeeded"):
        retried = await world.post(f"/v1/runs/{run['id']}/retry", None)
        assert (await ended(world, retried.json()["id"]))["state"] == state
    assert stand_in.texts("retried") == [["hello"]] * 3


async def inputs_of(world: World, session_id: str) -> list[str]:
    """The paths of the inputs, oldest first."""
    accepted = of_type(await log_of(world, session_id), "input.accepted")
    return [f"/v1/sessions/{session_id}/inputs/{entry['data']['input_id']}" for entry in accepted]


async def test_a_running_run_succeeds_without_a_withdrawn_input(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "withdraws")
    gate = Gate()
    stand_in.replies["withdraws"] = [gate.reply(OPENAI.text(LAST))]
    running = asyncio.create_task(talk(world, session_id, "first"))
    await gate.is_reached()
    await world.submit(session_id, "second")
    first, second = await inputs_of(world, session_id)
    assert error_of(await world.delete(first)) == (409, "conflict"), "it is being answered"
    assert (await world.delete(second)).status_code == 204
    gate.opened.set()
    run = await running
    assert (run["state"], run["inputs_accepted"], run["inputs_consumed"]) == ("succeeded", 1, 1)
    assert stand_in.texts("withdraws") == [["first"]]
    assert error_of(await world.delete(first)) == (409, "conflict"), "it was answered"
    check_log(await log_of(world, session_id))


async def test_a_failed_run_does_not_pass_on_a_withdrawn_input(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "passes on")
    gate = Gate()
    stand_in.replies["passes on"] = [gate.reply(after=refusal())]
    running = asyncio.create_task(talk(world, session_id, "first"))
    await gate.is_reached()
    for text in ("second", "third"):
        await world.submit(session_id, text)
    _, _, third = await inputs_of(world, session_id)
    assert (await world.delete(third)).status_code == 204
    gate.opened.set()
    assert (await running)["state"] == "failed"
    await at_rest(world, session_id)
    assert stand_in.texts("passes on") == [["first"], ["second"]]
    check_log(await log_of(world, session_id))


async def test_the_model_no_longer_sees_a_dropped_input(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "drops")
    stand_in.replies["drops"] = [*call_then_answer()[:1], refusal(500)]
    assert (await talk(world, session_id, "first"))["state"] == "failed"
    (first,) = await inputs_of(world, session_id)
    assert (await world.delete(first)).status_code == 204
    assert error_of(await world.delete(first)) == (409, "conflict")
    assert (await talk(world, session_id, "next"))["state"] == "succeeded"
    # The answer stays, and a conversation starts with the user.
    assert stand_in.texts("drops")[-1] == ["(an earlier message was removed)", "next"]
    log = await log_of(world, session_id)
    check_log(log)
    assert [entry["data"]["reason"] for entry in of_type(log, "input.discarded")] == ["dropped"]


@pytest.mark.long
async def test_an_input_is_either_consumed_or_withdrawn(world: World, stand_in: StandIn) -> None:
    """Inputs are withdrawn while a worker takes them."""

    async def race(model: str) -> None:
        session_id = await new_session(world, model)
        stand_in.replies[model] = call_then_answer()
        for text in ("first", "second"):
            await world.submit(session_id, text)
        paths = await inputs_of(world, session_id)
        answers = await asyncio.gather(*map(world.delete, paths))
        await at_rest(world, session_id)
        log = await log_of(world, session_id)
        check_log(log)
        withdrawn = {entry["data"]["input_id"] for entry in of_type(log, "input.discarded")}
        assert {path.rsplit("/", 1)[1]: answer.status_code for path, answer in zip(paths, answers, strict=True)} == {
            entry["data"]["input_id"]: 204 if entry["data"]["input_id"] in withdrawn else 409
            for entry in of_type(log, "input.accepted")
        }

    await asyncio.gather(*(race(f"race-{number}") for number in range(12)))


async def fork(world: World, session_id: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await world.post(
        f"/v1/sessions/{session_id}/fork", {} if before is None else {"before_event_id": before["id"]}
    )
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def essence(log: list[dict[str, Any]]) -> list[tuple[str, Any, str]]:
    return [(entry["type"], entry["data"], entry["created_at"]) for entry in log]


async def test_a_fork_goes_on_with_the_same_history(world: World, stand_in: StandIn) -> None:
    """The origin has a refused message, a dropped one, an open run and an input that waits."""
    session_id = await new_session(world, "origin")
    gate = Gate()
    answers = [
        *call_then_answer(),
        refusal(),
        refusal(500),
        streams(OPENAI.text("Yes.")),
        gate.reply(OPENAI.text(LAST)),
    ]
    stand_in.replies["origin"] = answers
    for text in ("first", "refused", "dropped", "last"):
        await talk(world, session_id, text)
    assert (await world.delete((await inputs_of(world, session_id))[2])).status_code == 204
    before = await log_of(world, session_id)
    running = asyncio.create_task(talk(world, session_id, "is being answered"))
    await gate.is_reached()
    await world.submit(session_id, "waits")

    forked = await fork(world, session_id)
    assert forked["forked_from"] == {"session_id": session_id, "event_id": None}
    (listed,) = [one for one in (await world.get("/v1/sessions")).json()["items"] if one["id"] == forked["id"]]
    assert (listed["last_run"], listed["forked_from"]) == (None, forked["forked_from"])
    assert listed["last_activity_at"] >= listed["created_at"]
    copy = await log_of(world, forked["id"])
    assert copy[0]["type"] == "session.forked"
    assert copy[0]["data"] == forked["forked_from"]
    assert essence(copy[1:]) == essence(before)
    check_log(copy)
    runs = {entry["run_id"] for entry in before}
    assert not runs & {entry["run_id"] for entry in copy}
    assert len(runs) == len({entry["run_id"] for entry in copy[1:]})
    assert (await world.get(f"/v1/sessions/{forked['id']}/runs")).json()["items"] == []

    # The origin is deleted: what it left out is still left out.
    stand_in.asked["origin"].clear()
    assert (await world.delete(f"/v1/sessions/{session_id}")).status_code == 204
    running.cancel()
    assert (await talk(world, forked["id"], "next"))["state"] == "succeeded"
    assert stand_in.texts("origin") == [["first", "last", "next"]]
    roles = [message["role"] for message in stand_in.asked["origin"][0]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    assert (await world.get(f"/v1/sessions/{forked['id']}")).json()["forked_from"]["session_id"] == session_id
    # A fork of the fork.
    again = await fork(world, forked["id"])
    assert (await talk(world, again["id"], "more"))["state"] == "succeeded"
    assert stand_in.texts("origin")[-1] == ["first", "last", "next", "more"]


async def test_a_fork_before_an_event(world: World, stand_in: StandIn) -> None:
    session_id = await new_session(world, "cut")
    gate = Gate()
    stand_in.replies["cut"] = [streams(OPENAI.text("One.")), gate.reply(after=call_then_answer()[0]), refusal(500)]
    await talk(world, session_id, "first")
    running = asyncio.create_task(talk(world, session_id, "second"))
    await gate.is_reached()
    await world.submit(session_id, "steered")
    gate.opened.set()
    await running
    log = await log_of(world, session_id)
    second = of_type(log, "input.accepted")[1]
    result = of_type(log, "tool.result")[0]

    forked = await fork(world, session_id, second)
    assert essence((await log_of(world, forked["id"]))[1:]) == essence(log[: log.index(second)])
    await talk(world, forked["id"], "another second")
    assert stand_in.texts("cut")[-1] == ["first", "another second"]

    # In the middle of a run, before the result of a call: the run ends there.
    forked = await fork(world, session_id, result)
    copy = await log_of(world, forked["id"])
    check_log(copy)
    assert [entry["type"] for entry in copy[-3:]] == ["message", "tool.call", "run.cancelled"]
    await talk(world, forked["id"], "next")
    assert stand_in.texts("cut")[-1] == ["first", "second", "next"]
    assert stand_in.asked["cut"][-1][-2]["content"] == NO_RESULT

    for unknown in (result["id"] + 10**9, copy[0]["id"]):
        answer = await world.post(f"/v1/sessions/{session_id}/fork", {"before_event_id": unknown})
        assert error_of(answer) == (400, "invalid_request")
    assert (await talk(world, session_id, "goes on"))["state"] == "succeeded"

    fill = "INSERT INTO session_events (session_id, type, data) SELECT %s, 'x', '{}' FROM generate_series(1, %s)"
    await world.execute(fill, UUID(session_id), MAX_EVENTS)
    assert error_of(await world.post(f"/v1/sessions/{session_id}/fork", {})) == (409, "conflict")
    await fork(world, session_id, second)


@pytest.mark.long
async def test_forks_while_a_session_is_written_to(world: World, stand_in: StandIn) -> None:
    """Every fork is a beginning of the log, without what was not finished."""
    session_id = await new_session(world, "written")

    async def write() -> None:
        for number in range(12):
            await world.submit(session_id, f"{number}")
            await asyncio.sleep(0.02)

    writing = asyncio.create_task(write())
    forks = []
    while not writing.done():
        forks += await asyncio.gather(*(fork(world, session_id) for _ in range(2)))
    await writing
    await at_rest(world, session_id)
    forks.append(await fork(world, session_id))
    log = essence(await log_of(world, session_id))
    for forked in forks:
        copy = await log_of(world, forked["id"])
        check_log(copy)
        rows = essence(copy[1:])
        assert [row for row in log if row in rows] == rows
        assert not rows or rows[-1][0] == "run.succeeded"
    assert essence((await log_of(world, forks[-1]["id"]))[1:]) == log
