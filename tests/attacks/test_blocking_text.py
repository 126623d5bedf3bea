"""Text that takes long to handle. The watchdog of the servers and workers must not speak: see conftest.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.fault.waiting import new_session, start
from tests.sandboxes import call, results, sandbox_host
from tests.workers import ended, working
from tests.world import Server, World

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


async def test_answers_that_take_long_to_check(world: World, server: Server, tmp_path: Path) -> None:
    session_id = await new_session(world, output_schema=EXPONENTIAL)
    with working(server.database_url, tmp_path):
        run = await ended(world, await start(world, session_id, "demo: json 1"))
    assert run["state"] == "failed"


@pytest.mark.long
async def test_search_files(world: World, server: Server, tmp_path: Path) -> None:
    session_id = await new_session(world, workspace="sandbox")
    with sandbox_host() as host, working(server.database_url, tmp_path, **host.settings):
        assert await results(world, session_id, call("search_files", pattern=PATTERN)) == ["Nothing matches."]
