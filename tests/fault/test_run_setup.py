"""What a run uses: fixed by its first attempt, except for the tool policy."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.provider_server import OPENAI, refuses, streams
from tests.fault.stand_in import StandIn, asking
from tests.fault.waiting import open_actions, resolve, results_of
from tests.sse import heard, reading
from tests.workers import ended, log_of, working
from tests.world import PATIENT, Server, World, bundle, clone_database, drop_database, serving

WEATHER = {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


async def new_skill(world: World, name: str, **files: str) -> str:
    skill_id = await world.new_skill(name)
    assert (await world.push(skill_id, bundle(name, **files))).status_code == 201
    return skill_id


def used_in(body: dict[str, Any]) -> tuple[Any, ...]:
    """The part of a request that the session determines."""
    tools = [tool["function"]["name"] for tool in body["tools"]]
    return body["messages"][0], tools, body.get("temperature")


@pytest.mark.long
async def test_a_run_keeps_its_setup_over_all_attempts(world: World, server: Server) -> None:
    guide, gone = await new_skill(world, "guide", note="old"), await new_skill(world, "gone")
    body = {
        "instructions": "Answer in verse.",
        "settings": {"temperature": 0.25},
        "skills": [{"skill_id": guide}, {"skill_id": gone}],
        "client_tools": [WEATHER],
    }
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as stand_in:
            calls = [
                ("call_2", "read_skill_file", '{"skill": "guide", "path": "note"}'),
                ("call_3", "list_skill_files", '{"skill": "gone"}'),
                ("call_4", "current_time", "{}"),
            ]
            stand_in.replies["old"] = [
                streams(OPENAI.calls("", ("call_1", "weather", "{}"))),
                streams(OPENAI.calls("", *calls)),
            ]
            with working(server.database_url, server.data_dir, **asking(door), MODEL_DEFAULT="openai-chat:old"):
                run_id = (await world.submit(session_id)).json()["run_id"]
                [action] = await open_actions(world, run_id)

            change = {
                "instructions": "Answer in prose.",
                "settings": {"temperature": 0.75},
                "skills": [{"skill_id": guide}],
                "client_tools": [],
                "tool_policy": {"current_time": "deny"},
            }
            assert (await world.patch(f"/v1/sessions/{session_id}", change)).status_code == 200
            assert (await world.push(guide, bundle("guide", note="new"))).status_code == 201
            assert (await world.delete(f"/v1/skills/{gone}")).status_code == 204

            with working(server.database_url, server.data_dir, **asking(door), MODEL_DEFAULT="openai-chat:new"):
                await resolve(world, action, result="Rain.")
                run = await ended(world, run_id)
                assert (run["state"], run["attempts"], run["model"]) == ("succeeded", 2, "openai-chat:old")
                results = await results_of(world, session_id)
                assert results == {
                    "weather": "Rain.",
                    "read_skill_file": "old",
                    "list_skill_files": 'Error: the skill "gone" was deleted.',
                    "current_time": results["current_time"],
                }
                assert results["current_time"].startswith("Denied"), "the policy applies at once"

                # Several: what is told of the first may be over before the stream follows the run.
                stand_in.replies["new"] = [refuses(500, OPENAI.error("server_error", "Busy."))] * 3
                async with reading(server.url, session_id, world.key) as reader:
                    await heard(world, session_id, reader)
                    next_run = (await world.submit(session_id)).json()["run_id"]
                    while (message := await reader.next()) is not None and message.event != "model.retry":
                        pass
                assert message is not None
                assert message.data["run_id"] == next_run
                assert message.data["attempt"] in (2, 3, 4)
                assert message.data["reason"] == "openai-chat:new failed with status 500: Busy."
                assert (await ended(world, next_run))["model"] == "openai-chat:new"

    first, second, third = map(used_in, stand_in.bodies["old"])
    *_, (system, tools, temperature) = map(used_in, stand_in.bodies["new"])
    assert "Answer in verse." in first[0]["content"]
    assert "weather" in first[1]
    assert "add_note" not in first[1], "it is a tool of the demo model"
    assert first[2] == 0.25
    assert second[1:] == third[1:] == first[1:]
    assert second == third
    assert "Answer in verse." in second[0]["content"]
    assert "Answer in prose." in system["content"]
    assert "weather" not in tools
    assert temperature == 0.75

    starts = [one["data"] for one in await log_of(world, session_id) if one["type"] == "run.started"]
    used = {
        "model": "openai-chat:old",
        "settings": {"temperature": 0.25, "max_output_tokens": None, "reasoning_effort": None},
        "skills": [
            {"skill_id": guide, "name": "guide", "version": 1},
            {"skill_id": gone, "name": "gone", "version": 1},
        ],
        "agent": None,
    }
    assert starts[:2] == [{"attempt": 1, **used}, {"attempt": 2, **used}]
    assert starts[2] == {
        "attempt": 1,
        "model": "openai-chat:new",
        "settings": {"temperature": 0.75, "max_output_tokens": None, "reasoning_effort": None},
        "skills": [{"skill_id": guide, "name": "guide", "version": 2}],
        "agent": None,
    }
