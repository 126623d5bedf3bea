"""Tool policy, tools of the caller and limits of sessions."""

from typing import Any

import pytest

from quarterdeck.tools.model import BuiltIn
from tests.world import World, error_of

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": True}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "The weather.", "parameters": CITY}
ORDER = {"name": "place_order-2", "description": "", "parameters": {"type": "object"}}
GIVEN: dict[str, Any] = {
    "tool_policy": {"add_note": "allow", "crm_*": "deny", "*": "ask"},
    "client_tools": [WEATHER, ORDER],
    "limits": {"run": {"max_cost_usd": 0.5}, "session": {"max_tokens": 10_000}},
}
SHOWN = GIVEN | {
    "limits": {
        "run": {"max_cost_usd": 0.5, "max_tokens": None},
        "session": {"max_cost_usd": None, "max_tokens": 10_000},
    }
}
NO_LIMIT = {"max_cost_usd": None, "max_tokens": None}
DEFAULTS = {"tool_policy": {}, "client_tools": [], "limits": {"run": NO_LIMIT, "session": NO_LIMIT}}


def shown(session: dict[str, Any]) -> dict[str, Any]:
    return {name: session[name] for name in GIVEN}


async def test_fields_are_stored_changed_as_a_whole_and_copied_by_a_fork(world: World) -> None:
    assert shown((await world.post("/v1/sessions", {})).json()) == DEFAULTS
    created = (await world.post("/v1/sessions", GIVEN)).json()
    assert shown(created) == SHOWN
    path = f"/v1/sessions/{created['id']}"
    assert (await world.get(path)).json() == created
    assert not GIVEN.keys() & (await world.get("/v1/sessions?limit=1")).json()["items"][0].keys(), "may be large"
    forked = (await world.post(f"{path}/fork", {})).json()
    assert shown((await world.get(f"/v1/sessions/{forked['id']}")).json()) == SHOWN

    same = await world.patch(path, GIVEN | {"title": None})
    assert (same.json(), same.headers["etag"]) == (created, '"1"')
    for name, value in {
        "tool_policy": {"*": "deny"},
        "client_tools": [ORDER],
        "limits": {"session": {"max_cost_usd": 2, "max_tokens": None}},
    }.items():
        before = (await world.get(path)).json()
        answer = await world.patch(path, {name: value}, headers={"If-Match": f'"{before["revision"]}"'})
        assert answer.status_code == 200, answer.text
        after = answer.json()
        assert {field for field in before if before[field] != after[field]} == {name, "revision"}
        assert (await world.get(path)).json() == after
        entry = (await world.get("/v1/audit-events?limit=1")).json()["items"][0]
        assert (entry["action"], entry["detail"]) == ("change_session", {"fields": [name]})
    assert after["limits"] == {
        "run": {"max_cost_usd": 0.5, "max_tokens": None},
        "session": {"max_cost_usd": 2, "max_tokens": None},
    }
    more = (await world.patch(path, {"limits": {"session": {"max_tokens": 7}}})).json()["limits"]
    assert more == after["limits"] | {"session": {"max_cost_usd": 2, "max_tokens": 7}}
    outdated = await world.patch(path, {"limits": {}}, headers={"If-Match": '"1"'})
    assert error_of(outdated) == (412, "precondition_failed")
    cleared = await world.patch(
        path, {"tool_policy": {}, "client_tools": [], "limits": {"run": NO_LIMIT, "session": NO_LIMIT}}
    )
    assert shown(cleared.json()) == DEFAULTS


def tool(**fields: Any) -> dict[str, Any]:
    return {"client_tools": [WEATHER | fields]}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"client_tools": [WEATHER, ORDER, WEATHER]}, "client_tools has two tools with the name weather."),
        *((tool(name=name), f"{name} is the name of a built-in tool.") for name in sorted(BuiltIn)),
        *((tool(name=name), "client_tools[0].name") for name in ("", "a b", "x" * 65, "weather\n", "wetter.de", "é")),
        (tool(description="a\0b"), "client_tools[0].description"),
        (tool(parameters={}), '"type": "object"'),
        (
            tool(parameters={"type": "string"}),
            'parameters of the tool weather must be a JSON Schema with "type": "object"',
        ),
        (tool(parameters={"type": "object", "properties": ["city"]}), "properties must be an object of JSON Schemas"),
        (tool(parameters={"type": "object", "properties": {"city": "string"}}), "properties must be an object"),
        (tool(parameters={"type": "object", "required": "city"}), "required must be a list of names"),
        (tool(parameters={"type": "object", "title": "\0"}), "must not contain U+0000"),
        (tool(parameters=nested(60)), "nested too deeply"),
        (tool(parameters=[]), "client_tools[0].parameters"),
        ({"client_tools": [WEATHER | {"name": f"t{number}"} for number in range(101)]}, "client_tools"),
        ({"client_tools": None}, "client_tools"),
        *(
            ({"tool_policy": {name: "ask"}}, "`$.tool_policy`. A key is: The name of a tool")
            for name in ("", "a*b", "**", "a b", "x\n", "x" * 129)
        ),
        ({"tool_policy": {"a": "ask", "b": "maybe"}}, "`$.tool_policy.b`. Allowed: allow, ask, deny"),
        ({"tool_policy": {f"t{number}": "ask" for number in range(201)}}, "tool_policy"),
        *(
            ({"limits": {scope: {name: value}}}, f"limits.{scope}.{name}")
            for scope in ("run", "session")
            for name, value in (("max_cost_usd", 0), ("max_cost_usd", "1"), ("max_tokens", 0), ("max_tokens", 1.5))
        ),
        ({"limits": None}, "limits"),
        ({"limits": {"day": {}}}, "unknown field `day` - at `$.limits`"),
        ({"limits": {"run": {"max_token": 1}}}, "unknown field `max_token` - at `$.limits.run`"),
    ],
)
async def test_bad_fields_are_400_and_change_nothing(world: World, body: dict[str, Any], message: str) -> None:
    session = (await world.post("/v1/sessions", {})).json()
    headers = {"Idempotency-Key": "k"}
    for answer in (
        await world.post("/v1/sessions", body, headers=headers),
        await world.patch(f"/v1/sessions/{session['id']}", body, headers=headers),
    ):
        assert error_of(answer) == (400, "invalid_request")
        assert message in answer.json()["error"]["message"]
    assert (await world.get(f"/v1/sessions/{session['id']}")).json() == session


async def test_a_tool_that_a_session_has_may_keep_its_name(world: World) -> None:
    """A later release may have a built-in tool of the same name."""
    session = (await world.post("/v1/sessions", {"client_tools": [WEATHER]})).json()
    path = f"/v1/sessions/{session['id']}"
    await world.execute(
        """UPDATE sessions SET client_tools = jsonb_set(client_tools, '{0,name}', '"add_note"') WHERE id = %s""",
        session["id"],
    )
    kept = WEATHER | {"name": "add_note"}
    assert (await world.patch(path, {"client_tools": [kept, ORDER]})).status_code == 200
    assert (await world.patch(path, {"client_tools": [kept | {"description": "New."}]})).status_code == 200
    assert (await world.patch(path, {"client_tools": [ORDER]})).status_code == 200
    assert error_of(await world.patch(path, {"client_tools": [kept, ORDER]})) == (400, "invalid_request")


async def test_the_order_of_keys_does_not_matter_to_an_idempotency_key(world: World) -> None:
    headers = {"Idempotency-Key": "order"}
    first = await world.post("/v1/sessions", GIVEN, headers=headers)

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: turned(value[name]) for name in reversed(value)}
        return [turned(one) for one in value] if isinstance(value, list) else value

    again = await world.post("/v1/sessions", turned(GIVEN), headers=headers)
    assert (again.status_code, again.content) == (201, first.content)
