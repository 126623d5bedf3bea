"""What is sent to a model before its newest turn is the same, byte for byte, as in the step before, whatever happens to
the run: providers find it in their caches. With everything that a session can have, and three workers one after
another."""

import json
import signal
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.contract.provider_server import ANTHROPIC, OPENAI, Dialect, Reply, streams, thinking_calls
from tests.contract.provider_talk import all_three
from tests.contract.test_prompt_caches import assert_begins_with, without_marks
from tests.fault.mcp_sessions import LOCAL, new_mcp_server
from tests.fault.stand_in import Gate, StandIn
from tests.fault.test_run_setup import new_skill
from tests.fault.waiting import open_actions, resolve
from tests.mcp_server import mcp_server
from tests.workers import check_log, ended, log_of, take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving

KEYS = {"MODEL_OPENAI_API_KEY": "k", "MODEL_ANTHROPIC_API_KEY": "k"}
LOOKUP = {
    "name": "look_up",
    "description": "Find it.",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}, "a": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, **LOCAL, **KEYS) as server:
        yield server
    drop_database(postgres_url, url)


def asking(door: socket.socket, dialect: Dialect) -> dict[str, object]:
    url = f"http://127.0.0.1:{door.getsockname()[1]}"
    chosen = {f"MODEL_{name.upper()}": value for name, value in dialect.settings.items()}
    return KEYS | {"MODEL_OPENAI_BASE_URL": f"{url}/v1", "MODEL_ANTHROPIC_BASE_URL": url} | chosen


class Script:
    """The answers of the model, in their order."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._calls = 0

    def call(self, *names: str, **arguments: str) -> Reply:
        self._calls += len(names)
        calls = [(f"call_{self._calls}_{name}", name, json.dumps(arguments)) for name in names]
        if self._dialect is ANTHROPIC:
            return streams(thinking_calls("Hm.", f"signed{self._calls}", "Let me see.", *calls))
        return streams(self._dialect.calls("Let me see.", *calls))

    def run(self) -> list[Reply]:
        """Seven steps, with an approval and a result of the caller in the middle."""
        return [
            self.call("current_time", "list_skill_files", skill="guide"),
            self.call("read_skill_file", skill="guide", path="SKILL.md"),
            # Not in the order in which PostgreSQL keeps them.
            self.call("files__echo", zone="b", text="hello", a="c"),
            self.call("files__image"),
            self.call("look_up", zone="north", a="b"),
            self.call("no_such_tool"),
            streams(self._dialect.text("So it is.")),
        ]


async def new_session(world: World, model: str, mcp_url: str) -> str:
    body = {
        "model": model,
        "instructions": "Be brief.",
        "sandbox": None,
        "client_tools": [LOOKUP],
        "skills": [{"skill_id": await new_skill(world, name)} for name in ("guide", "atlas")],
        "mcp_servers": [await new_mcp_server(world, mcp_url, name) for name in ("files", "archive")],
        "tool_policy": {"files__echo": "ask", "files__image": "allow"},
    }
    answer = await world.post("/v1/sessions", body)
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def approve(world: World, run_id: str) -> None:
    [action] = await open_actions(world, run_id)
    await resolve(world, action, decision="allow")


async def give_result(world: World, run_id: str) -> None:
    [action] = await open_actions(world, run_id)
    await resolve(world, action, result={"zone": "north", "a": 1})


@pytest.mark.long
@all_three
async def test_a_request_begins_with_the_whole_earlier_one(world: World, server: Server, dialect: Dialect) -> None:
    script, gate = Script(dialect), Gate()
    with socket.create_server(("127.0.0.1", 0)) as door, mcp_server() as mcp:
        settings = LOCAL | asking(door, dialect)
        model = dialect.model.partition(":")[2]
        session_id = await new_session(world, dialect.model, mcp.url)
        async with StandIn.running(door) as stand_in:
            replies = stand_in.replies[model]
            # The last request before the worker is killed is not answered: the next worker repeats it.
            replies += [*script.run(), *script.run()[:4], gate.reply(), *script.run()[3:], *script.run()]
            with working(server.database_url, server.data_dir, **settings) as first:
                run_id = (await world.submit(session_id, "Find out.")).json()["run_id"]
                await approve(world, run_id)
                [action] = await open_actions(world, run_id)
                assert (await world.submit(session_id, "Faster.")).json()["outcome"] == "steered"
                await resolve(world, action, result="The north.")
                await ended(world, run_id)
                run_id = (await world.submit(session_id, "Once more.")).json()["run_id"]
                await approve(world, run_id)
                await gate.is_reached()
                first.signal(signal.SIGKILL)
                first.process.wait()
            await take_for_dead(world)
            # This one is stopped while the run waits.
            with working(server.database_url, server.data_dir, **settings):
                await open_actions(world, run_id)
            with working(server.database_url, server.data_dir, **settings):
                await give_result(world, run_id)
                await ended(world, run_id)
                run_id = (await world.submit(session_id, "And again.")).json()["run_id"]
                await approve(world, run_id)
                await give_result(world, run_id)
                assert (await ended(world, run_id))["state"] == "succeeded"
            log = await log_of(world, session_id)
            check_log(log)
            assert not [event for event in log if event["type"].startswith("context.")]
            bodies: list[Any] = [without_marks(body) for body in stand_in.bodies[model]]
            assert len(bodies) == 23
            for earlier, later in pairwise(bodies):
                assert_begins_with(later, earlier)
            assert json.dumps(bodies[11]) == json.dumps(bodies[12]), "the request that another worker repeats"


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "compaction"),
    [(OPENAI, "summarise"), (OPENAI, "trim"), (ANTHROPIC, "summarise")],
    ids=["openai", "trim", "anthropic"],
)
async def test_a_long_run_changes_what_was_sent_seldom(
    world: World, server: Server, dialect: Dialect, compaction: str
) -> None:
    """With results that fill the context again and again. The log says each time that it changed."""
    script, steps, step_tokens, context_tokens = Script(dialect), 40, 300, 4000
    model = dialect.model.partition(":")[2]
    skill_id = await new_skill(world, "guide", **{"notes.md": "word " * (4 * step_tokens // 5)})
    reads = [script.call("read_skill_file", skill="guide", path="notes.md") for _ in range(steps)]
    body = {"model": dialect.model, "sandbox": None, "skills": [{"skill_id": skill_id}]}
    session_id = (await world.post("/v1/sessions", body)).json()["id"]
    settings = {"MODEL_CONTEXT_TOKENS": context_tokens, "MODEL_COMPACTION": compaction}
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with StandIn.running(door) as stand_in:
            # The model calls a tool where it is asked for a summary: then its text is the summary.
            stand_in.replies[model] = reads
            with working(server.database_url, server.data_dir, **settings, **asking(door, dialect)):
                await ended(world, (await world.submit(session_id, "Read it.")).json()["run_id"])
            bodies: list[Any] = [without_marks(body) for body in stand_in.bodies[model] if "tools" in body]
    changes = [event for event in await log_of(world, session_id) if event["type"].startswith("context.")]
    assert {event["type"] for event in changes} == {"context.compacted"}
    changed = 0
    for earlier, later in pairwise(bodies):
        first = [[body["tools"], body.get("system", body["messages"][0])] for body in (earlier, later)]
        assert json.dumps(first[0]) == json.dumps(first[1])
        try:
            assert_begins_with(later, earlier)
        except AssertionError:
            changed += 1
    # Each time about half of the context is left out.
    assert 1 < changed == len(changes) <= 1 + steps * 1.5 * step_tokens // (context_tokens // 2)
    if dialect is ANTHROPIC:
        answers = [message["content"] for message in bodies[-1]["messages"] if message["role"] == "assistant"]
        assert {answer[0]["type"] for answer in answers} == {"thinking"}, "signed reasoning stays behind a summary"
