"""Query parameters and fields that an operation does not have are refused: also in objects inside a body."""

from typing import Any

import msgspec
import pytest

from quarterdeck.agents.configuration import AgentConfiguration
from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.operation import Operation, Payload
from quarterdeck.http.request_body import decode_json
from tests.world import World, error_of

BODIES = [operation for operation in OPERATIONS if not isinstance(operation.payload, Payload)]
TOOL = {"name": "look", "description": "", "parameters": {"type": "object", "any": {"thing": 1}}}


@pytest.mark.parametrize("operation", BODIES, ids=lambda operation: operation.name)
def test_every_body(operation: Operation) -> None:
    with pytest.raises(ServiceError, match=r"unknown field `colour`\. Known: "):
        decode_json(b'{"colour": "blue"}', operation.payload)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"temprature": 1}}, "unknown field `temprature` - at `$.settings`. Known: temperature, "),
        ({"limits": {"run": {"max_token": 1}}}, "`max_token` - at `$.limits.run`. Known: max_cost_usd, max_tokens"),
        ({"limits": {"day": {}}}, "unknown field `day` - at `$.limits`. Known: run, session"),
        (
            {"client_tools": [TOOL, TOOL | {"name": "b", "strict": True}]},
            "`strict` - at `$.client_tools[1]`. Known: ",
        ),
        ({"skills": [{"skill_id": "x", "verson": 3}]}, "`verson` - at `$.skills[0]`. Known: skill_id, version"),
        ({"agent": {"agent_id": "x", "latest": True}}, "`latest` - at `$.agent`. Known: agent_id, version"),
        ({"x" * 9000: 1}, "Known: "),
    ],
)
async def test_objects_inside_a_body(world: World, change: dict[str, Any], message: str) -> None:
    for answer in (
        await world.post("/v1/sessions", change),
        await world.patch(f"/v1/sessions/{await world.new_session()}", change),
    ):
        assert error_of(answer) == (400, "invalid_request")
        assert message in answer.json()["error"]["message"]


async def test_values_of_any_shape_keep_their_fields(world: World) -> None:
    body = {
        "client_tools": [TOOL],
        "output_schema": {"type": "object", "properties": {"a": {"x-own": {"b": 1}}}},
        "tool_policy": {"any_name": "ask"},
    }
    assert (await world.post("/v1/sessions", body)).status_code == 201


def test_types_are_checked_as_before() -> None:
    for body in (b"[]", b"3", b"null", b'{"skills": {}}', b'{"settings": []}', b'{"limits": {"run": 3}}', b"{", b""):
        with pytest.raises(ServiceError, match="Invalid body"):
            decode_json(body, AgentConfiguration)
    assert decode_json(b'{"settings": {"temperature": 0.5}}', AgentConfiguration).settings.temperature == 0.5


def test_a_large_body_takes_bounded_time() -> None:
    """20 ms in an event loop are allowed for all of it."""
    from time import process_time

    tools = [TOOL | {"name": f"t{at}", "parameters": {"type": "object", "x": ["y"] * 1600}} for at in range(100)]
    raw = msgspec.json.encode({"client_tools": tools})
    started = process_time()
    for _ in range(5):
        decode_json(raw, AgentConfiguration)
    assert (process_time() - started) / 5 < 0.1
