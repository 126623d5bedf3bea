"""GET /v1/actions, GET /v1/actions/{action_id}, POST /v1/actions/{action_id}/resolve."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.core.actors import Permission
from quarterdeck.runs.action_model import LimitScope, NewAction
from tests.waiting_runs import (
    approval,
    budget,
    jobs_of,
    new_actions,
    run_state,
    tool_result,
    unknown_outcome,
    waiting_run,
)
from tests.workers import log_of
from tests.world import World, error_of

INVALID, CONFLICT, FORBIDDEN, NOT_FOUND = (
    (400, "invalid_request"),
    (409, "conflict"),
    (403, "forbidden"),
    (404, "not_found"),
)
APPROVAL, TOOL_RESULT, UNKNOWN, BUDGET = approval(), tool_result(), unknown_outcome(), budget()


async def resolve(world: World, action_id: str, answer: object, *, key: str | None = None) -> httpx.Response:
    return await world.post(f"/v1/actions/{action_id}/resolve", answer, key=key)


async def listed(world: World, query: str = "", *, key: str | None = None) -> list[str]:
    answer = await world.get(f"/v1/actions{query}", key=key)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    ("new", "answer"),
    [
        (APPROVAL, {"decision": "allow"}),
        (APPROVAL, {"decision": "allow", "arguments": {"text": "other", "n": [1, 1.5, None]}, "remember": "session"}),
        (APPROVAL, {"decision": "deny", "message": "Not today."}),
        (TOOL_RESULT, {"result": "text"}),
        (TOOL_RESULT, {"result": None}),
        (TOOL_RESULT, {"result": {"rows": [1.5, True, "ü"]}, "is_error": True}),
        (UNKNOWN, {"decision": "retry"}),
        (UNKNOWN, {"decision": "done", "result": "It is stored."}),
        (UNKNOWN, {"decision": "failed"}),
        (BUDGET, {"decision": "raise", "max_tokens": 500}),
        (BUDGET, {"decision": "stop"}),
    ],
    ids=str,
)
async def test_an_answer_resolves_the_action_and_continues_the_run(
    world: World, new: NewAction, answer: dict[str, Any]
) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world, new)
    assert (await world.get(f"/v1/runs/{run_id}")).json()["waiting_for"] == [action_id]
    shown = (await world.get(f"/v1/actions/{action_id}")).json()
    assert (shown["state"], shown["resolution"], shown["resolved_by"]) == ("open", None, None)
    resolved = await resolve(world, action_id, answer)
    assert resolved.status_code == 200, resolved.text
    body = resolved.json()
    assert (body["state"], body["resolution"]) == ("resolved", answer)
    assert body["resolved_by"]["type"] == "api_key"
    assert body == (await world.get(f"/v1/actions/{action_id}")).json()
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["waiting_for"], await jobs_of(world, run_id)) == ("queued", [], 1)
    required, closed = (await log_of(world, session_id))[-2:]
    assert (required["type"], closed["type"]) == ("action.required", "action.resolved")
    assert required["data"] == {"action_id": action_id} | {
        name: body[name] for name in ("kind", "call_id", "tool", "arguments", "reached", "reason", "expires_at")
    }
    assert closed["data"] == {"action_id": action_id} | {
        name: body[name] for name in ("kind", "state", "call_id", "tool", "resolution", "resolved_by")
    }


@pytest.mark.parametrize(
    ("new", "answer", "told"),
    [
        (APPROVAL, {}, "decision is required"),
        (APPROVAL, {"decision": "retry"}, "does not belong"),
        (APPROVAL, {"decision": "allow", "result": "x"}, "result does not belong"),
        (APPROVAL, {"decision": "yes"}, "Allowed: allow, deny, retry, done, failed, raise, stop"),
        (APPROVAL, {"decision": "allow", "argument": {}}, "unknown field `argument`"),
        (APPROVAL, {"decision": "allow", "message": "hi"}, "message belongs to deny only"),
        (APPROVAL, {"decision": "deny", "remember": "session"}, "remember belongs to allow only"),
        (APPROVAL, {"decision": "deny", "arguments": {}}, "arguments belongs to allow only"),
        (APPROVAL, {"decision": "allow", "remember": "forever"}, "Invalid"),
        (APPROVAL, {"decision": "allow", "arguments": [1]}, "Invalid"),
        (APPROVAL, {"decision": "allow", "arguments": {"a": [{"b\0": 1}]}}, "U+0000"),
        (TOOL_RESULT, {}, "result is required"),
        (TOOL_RESULT, {"decision": "allow", "result": 1}, "does not belong"),
        (TOOL_RESULT, {"result": ["\0"]}, "U+0000"),
        (UNKNOWN, {"decision": "allow"}, "does not belong"),
        (UNKNOWN, {"decision": "retry", "result": "x"}, "result belongs to done and failed only"),
        (BUDGET, {"decision": "raise"}, "raise needs max_tokens"),
        (BUDGET, {"decision": "raise", "max_cost_usd": 5}, "raise needs max_tokens"),
        (BUDGET, {"decision": "raise", "max_tokens": -1}, "Invalid"),
        (BUDGET, {"decision": "stop", "max_tokens": 500}, "max_tokens belongs to raise only"),
    ],
    ids=str,
)
async def test_the_wrong_answer_for_the_kind(world: World, new: NewAction, answer: dict[str, Any], told: str) -> None:
    _, run_id, (action_id,) = await waiting_run(world, new)
    refused = await resolve(world, action_id, answer)
    assert error_of(refused) == INVALID
    assert told in refused.json()["error"]["message"]
    assert await run_state(world, run_id) == "waiting"


async def test_an_answer_that_is_nested_too_deeply_is_refused_or_stored_whole(world: World) -> None:
    _, _, (action_id,) = await waiting_run(world, TOOL_RESULT)
    headers = world.headers() | {"Content-Type": "application/json"}
    for depth in (100_000, 5_000, 1_100, 900, 500, 100):
        raw = b'{"result":' + b"[" * depth + b"]" * depth + b"}"
        # With a key, the body is encoded before it is checked by its kind.
        key = {"Idempotency-Key": str(depth)} if depth > 100 else {}
        answer = await world.http.post(f"/v1/actions/{action_id}/resolve", content=raw, headers=headers | key)
        assert answer.status_code == (400 if depth > 100 else 200), (depth, answer.text)


async def test_the_first_answer_counts(world: World) -> None:
    key = await world.new_key(label="night shift")
    session_id, run_id, (action_id,) = await waiting_run(world, TOOL_RESULT)
    first = await resolve(world, action_id, {"result": {"a": 1, "b": 1e30}}, key=key)
    entries = await log_of(world, session_id)
    for same in ({"result": {"b": 1e30, "a": 1.0}}, {"result": {"a": 1, "b": 10**30}, "is_error": False}):
        again = await resolve(world, action_id, same)
        assert (again.status_code, again.json()) == (200, first.json())
    for other in ({"result": {"a": True, "b": 1e30}}, {"result": {"a": 1}}, {"result": "x"}):
        refused = await resolve(world, action_id, other)
        assert error_of(refused) == CONFLICT
        assert "night shift" in refused.json()["error"]["message"]
        assert "Retry-After" not in refused.headers
    assert error_of(await resolve(world, action_id, {"decision": "allow"})) == INVALID
    assert await log_of(world, session_id) == entries
    assert await jobs_of(world, run_id) == 1


async def test_an_integer_may_be_larger_than_all_floats(world: World) -> None:
    _, _, (action_id,) = await waiting_run(world, TOOL_RESULT)
    huge = {"result": int("1" * 400)}
    for answer, status in ((huge, 200), (huge, 200), ({"result": 1.5}, 409)):
        assert (await resolve(world, action_id, answer)).status_code == status


async def test_a_run_continues_when_all_its_actions_have_an_answer(world: World) -> None:
    session_id, run_id, action_ids = await waiting_run(world, APPROVAL, TOOL_RESULT, tool_result(call_id="call_9"))
    await resolve(world, action_ids[1], {"result": 1})
    await resolve(world, action_ids[0], {"decision": "deny"})
    run = (await world.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["waiting_for"], await jobs_of(world, run_id)) == ("waiting", action_ids[2:], 0)
    steered = await world.submit(session_id, "meanwhile")
    assert steered.json() == {"outcome": "steered", "run_id": run_id}
    await world.execute("UPDATE runs SET waiting_since = waiting_since - interval '1 hour' WHERE id = %s", run_id)
    await resolve(world, action_ids[2], {"result": 2})
    assert (await run_state(world, run_id), await jobs_of(world, run_id)) == ("queued", 1)
    ((waited,),) = await world.fetch("SELECT waited_seconds FROM runs WHERE id = %s", run_id)
    assert waited >= 3600


async def test_closed_actions_refuse_answers(world: World) -> None:
    _, _, action_ids = await waiting_run(world, APPROVAL, TOOL_RESULT)
    for action_id, state, told in zip(action_ids, ("expired", "cancelled"), ("expired", "cancelled"), strict=True):
        statement = "UPDATE actions SET state = %s, resolved_at = now() WHERE id = %s"
        await world.execute(statement, state, action_id)
        answer = {"decision": "allow"} if action_id == action_ids[0] else {"result": 1}
        refused = await resolve(world, action_id, answer)
        assert error_of(refused) == CONFLICT
        assert told in refused.json()["error"]["message"]


async def test_an_idempotency_key_repeats_the_response(world: World) -> None:
    session_id, _, action_ids = await waiting_run(world, APPROVAL, tool_result())
    headers = {"Idempotency-Key": "one"}
    path = f"/v1/actions/{action_ids[0]}/resolve"
    first = await world.post(path, {"decision": "allow"}, headers=headers)
    assert first.status_code == 200
    again = await world.post(path, {"decision": "allow"}, headers=headers)
    assert (again.content, again.headers["Idempotency-Replayed"]) == (first.content, "true")
    assert error_of(await world.post(path, {"decision": "deny"}, headers=headers)) == CONFLICT
    assert (
        error_of(await world.post(f"/v1/actions/{action_ids[1]}/resolve", {"result": 1}, headers=headers)) == CONFLICT
    )
    assert len([1 for entry in await log_of(world, session_id) if entry["type"] == "action.resolved"]) == 1


async def test_the_list_has_pages_and_filters(world: World) -> None:
    session_id, _, mine = await waiting_run(world, APPROVAL, TOOL_RESULT, UNKNOWN)
    _, other_run, others = await waiting_run(world, APPROVAL, BUDGET)
    await resolve(world, mine[0], {"decision": "allow"})
    await resolve(world, others[1], {"decision": "stop"})
    newest = [*others[::-1], *mine[::-1]]
    assert await listed(world) == newest
    assert await listed(world, "?order=asc") == newest[::-1]
    assert await listed(world, "?state=open") == [others[0], mine[2], mine[1]]
    assert await listed(world, "?state=resolved&order=asc") == [mine[0], others[1]]
    assert await listed(world, "?kind=approval") == [others[0], mine[0]]
    assert await listed(world, "?kind=approval&state=open") == [others[0]]
    assert await listed(world, f"?session_id={session_id}") == mine[::-1]
    assert await listed(world, f"?session_id={session_id}&state=open&kind=tool_result") == [mine[1]]
    assert await listed(world, f"?session_id={uuid4()}") == []
    assert await listed(world, "?state=cancelled") == []
    for order in ("asc", "desc"):
        found, cursor = [], ""
        while True:
            page = (await world.get(f"/v1/actions?limit=2&order={order}{cursor}")).json()
            found += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&after={page['next_cursor']}"
        assert found == (newest if order == "desc" else newest[::-1])
    for query in ("state=no", "kind=no", "session_id=no", "limit=0", "after=no", "state=open&state=open"):
        assert error_of(await world.get(f"/v1/actions?{query}")) == INVALID
    # The action of a cursor may leave the filter before the next page is read.
    (late,) = await new_actions(world, session_id, other_run, [UNKNOWN])
    assert await listed(world, f"?state=resolved&after={late}") == [others[1], mine[0]]


async def test_a_page_of_large_actions_is_cut(world: World) -> None:
    big = {"text": "x" * 900_000}
    _, _, action_ids = await waiting_run(world, *[approval(**big) for _ in range(8)])
    found, cursor, pages = [], "", 0
    while True:
        page = (await world.get(f"/v1/actions?{cursor}")).json()
        assert len(page["items"]) <= 5
        found += [item["id"] for item in page["items"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = f"after={page['next_cursor']}"
    assert (found, pages) == (action_ids[::-1], 2)


async def test_a_session_token_needs_may_resolve(world: World) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world)
    other_session, _, (other_action,) = await waiting_run(world)
    without = await world.new_token(session_id)
    token = await world.new_token(session_id, may_resolve=True)
    absent = await world.get(f"/v1/actions/{uuid4()}", key=token)
    assert error_of(absent) == NOT_FOUND
    for key, hidden in ((without, action_id), (token, other_action)):
        for answer in (
            await world.get(f"/v1/actions/{hidden}", key=key),
            await resolve(world, hidden, {"decision": "allow"}, key=key),
        ):
            assert (error_of(answer), answer.content) == (NOT_FOUND, absent.content)
    assert (await world.get("/v1/actions", key=without)).content == absent.content
    assert await listed(world, key=token) == [action_id]
    assert await listed(world, f"?session_id={session_id}", key=token) == [action_id]
    assert await listed(world, f"?session_id={other_session}", key=token) == []
    assert (await world.get(f"/v1/actions/{action_id}", key=token)).status_code == 200
    resolved = await resolve(world, action_id, {"decision": "allow"}, key=token)
    assert resolved.json()["resolved_by"]["type"] == "session_token"
    assert await run_state(world, run_id) == "queued"
    (event,) = (await world.get(f"/v1/audit-events?object_id={action_id}")).json()["items"]
    assert event["session_token_id"] == resolved.json()["resolved_by"]["id"]


@pytest.mark.parametrize("scope", LimitScope)
async def test_who_may_raise_a_limit(world: World, scope: LimitScope) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world, budget(scope))
    more = {"decision": "raise", "max_tokens": 500}
    token = await world.new_token(session_id, may_resolve=True)
    assert error_of(await resolve(world, action_id, more, key=token)) == FORBIDDEN
    key = await world.new_key(Permission.ACTION_RESOLVE)
    answer = await resolve(world, action_id, more, key=key)
    assert answer.status_code == (403 if scope is LimitScope.DAY else 200)
    assert (await resolve(world, action_id, more)).status_code == 200
    assert await run_state(world, run_id) == "queued"


async def test_anybody_may_stop_a_run_at_its_limit(world: World) -> None:
    session_id, run_id, (action_id,) = await waiting_run(world, budget(LimitScope.DAY))
    token = await world.new_token(session_id, may_resolve=True)
    assert (await resolve(world, action_id, {"decision": "stop"}, key=token)).status_code == 200
    assert await run_state(world, run_id) == "queued"


async def test_a_limit_is_raised_above_what_was_used(world: World) -> None:
    session_id = (await world.post("/v1/sessions", {"limits": {"session": {"max_tokens": 100}}})).json()["id"]
    _, run_id, (action_id,) = await waiting_run(world, budget(LimitScope.SESSION), session_id=session_id)
    await world.execute("UPDATE runs SET input_tokens = 1234000, output_tokens = 567 WHERE id = %s", run_id)
    assert '"maximum":100,"used":120}' in (await world.get(f"/v1/actions/{action_id}")).text, "whole numbers"
    refused = await resolve(world, action_id, {"decision": "raise", "max_tokens": 1_234_567})
    assert error_of(refused) == INVALID
    assert "used: 1,234,567 tokens." in refused.json()["error"]["message"]
    assert (await resolve(world, action_id, {"decision": "raise", "max_tokens": 1_234_568})).status_code == 200
    session = (await world.get(f"/v1/sessions/{session_id}")).json()
    assert session["limits"]["session"]["max_tokens"] == 1_234_568


async def test_the_audit_log_names_the_tool_and_the_decision(world: World) -> None:
    session_id, run_id, action_ids = await waiting_run(world, approval("delete_file"), BUDGET)
    await resolve(world, action_ids[0], {"decision": "deny", "message": "No."})
    await resolve(world, action_ids[0], {"decision": "deny", "message": "No."})
    await resolve(world, action_ids[1], {"decision": "stop"})
    events = (await world.get("/v1/audit-events?object_type=action")).json()["items"]
    where = {"session_id": session_id, "run_id": run_id}
    assert [(event["action"], event["object_name"], event["detail"]) for event in events] == [
        ("resolve_action", "budget", where | {"kind": "budget", "decision": "stop"}),
        ("resolve_action", "delete_file", where | {"kind": "approval", "decision": "deny"}),
    ]


async def test_actions_are_deleted_with_their_session(world: World) -> None:
    session_id, _, (action_id,) = await waiting_run(world)
    assert (await world.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert error_of(await world.get(f"/v1/actions/{action_id}")) == NOT_FOUND
    assert error_of(await resolve(world, action_id, {"decision": "allow"})) == NOT_FOUND
    assert await listed(world) == []


async def test_webhooks_are_told(world: World) -> None:
    """Of every action that a run begins to wait for, and of every end of one, with the action as the API shows it."""
    query = (
        "SELECT event, run_id::text, convert_from(payload, 'UTF8')::jsonb FROM webhook_deliveries WHERE webhook_id = %s"
    )
    webhook_id = await world.new_webhook("https://example.com/hook", "action.required", "action.resolved")
    await world.new_webhook("https://example.com/others", "run.succeeded")
    _, run_id, action_ids = await waiting_run(world, APPROVAL, TOOL_RESULT)
    opened = [(await world.get(f"/v1/actions/{action_id}")).json() for action_id in action_ids]
    await resolve(world, action_ids[0], {"decision": "allow"})
    waited = (await world.get(f"/v1/runs/{run_id}")).json()["waited_seconds"]
    cancelled = await world.post(f"/v1/runs/{run_id}/cancel", None)
    assert cancelled.status_code == 200
    assert cancelled.json()["waited_seconds"] > waited > 0
    closed = [(await world.get(f"/v1/actions/{action_id}")).json() for action_id in action_ids]
    assert [action["state"] for action in closed] == ["resolved", "cancelled"]
    sent = await world.fetch(f"{query} ORDER BY id", webhook_id)
    events = ["action.required", "action.required", "action.resolved", "action.resolved"]
    assert [(event, run) for event, run, _ in sent] == [(event, run_id) for event in events]
    assert [payload["type"] for _, _, payload in sent] == events
    workspace = {"workspace_id": str(world.workspace_id)}
    assert [payload["data"] for _, _, payload in sent] == [action | workspace for action in (*opened, *closed)]
