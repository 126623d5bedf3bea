"""Text that takes long to handle. The watchdog of the servers and workers must not speak: see conftest.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.fault.waiting import new_session, start
from tests.sandboxes import call, results, sandbox_host
from tests.workers import ended, working
from tests.world import Server, World

pytestmark = pytest.mark.long

# Takes seconds to compile.
PATTERN = "(?i)" + "[Ā-\uffff]" * 100
# 2 to the power of 40 checks.
EXPONENTIAL: dict[str, Any] = {
    "$ref": "#/$defs/0",
    "$defs": {f"{level}": {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(40)} | {"40": {}},
}


@pytest.mark.parametrize(
    ("schema", "status"),
    [
        ({"pattern": PATTERN}, 201),
        ({"pattern": "(?i)" + "[Ā-\uffff]" * 1900}, 400),
        ({"pattern": r"[\w\W]{1,500}" * 10}, 400),
        ({"pattern": "." * 35_000}, 400),
        ({"allOf": [{"pattern": f"\\w{{{number}}}"} for number in range(150, 190)]}, 201),
        ({"properties": {str(number): {"enum": [*range(20)]} for number in range(240)}}, 201),
    ],
    ids=["classes", "many classes", "repetitions", "long", "many patterns", "many parts"],
)
async def test_output_schema(world: World, schema: dict[str, Any], status: int) -> None:
    answer = await world.post("/v1/sessions", {"output_schema": schema})
    assert answer.status_code == status, answer.text


# What the demo model answers to inputs with this schema, and how the run ends.
RUNS: dict[str, tuple[dict[str, Any], str, str]] = {
    "checks of an answer": (EXPONENTIAL, "demo: json 1", "failed"),
    "blanks in a line": ({}, f"demo: json 1{' ' * 100_000}x", "failed"),
    "an example of many values": ({"properties": {f"{at}": {"$ref": "#"} for at in range(10)}}, "x", "succeeded"),
    "an example of a long text": ({"type": "string", "minLength": 10**12}, "x", "failed"),
}


async def test_answers(world: World, server: Server, tmp_path: Path) -> None:
    with working(server.database_url, tmp_path):
        for name, (schema, text, state) in RUNS.items():
            session_id = await new_session(world, output_schema=schema)
            assert (await ended(world, await start(world, session_id, text)))["state"] == state, name


async def test_search_files(world: World, server: Server, tmp_path: Path) -> None:
    session_id = await new_session(world, sandbox={})
    with sandbox_host() as host, working(server.database_url, tmp_path, **host.settings):
        assert await results(world, session_id, call("search_files", pattern=PATTERN)) == ["Nothing matches."]


async def test_large_json(world: World) -> None:
    """As many values as fit into a body. Each is an object of Python."""
    schema = {"type": "object", "x": [[]] * 340_000}
    tools = [{"name": "tool", "description": "", "parameters": schema}]
    answer = await world.post("/v1/sessions", {"client_tools": tools})
    assert answer.status_code == 400, answer.text
    assert "too large" in answer.text
