"""What happens to an open tool call: every combination of tool, rule, log and answers."""

from itertools import product
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.models.model import MALFORMED_ARGUMENTS, ToolCall
from quarterdeck.runs.action_model import ActionKind, ActionState, CallAction
from quarterdeck.sessions.model import CreateSessionBody
from quarterdeck.tools.model import ToolRule, ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Tool, client_tool, rule_of
from quarterdeck.worker.tool_calls import (
    CallState,
    CarryOut,
    KnownResult,
    NextStep,
    Rules,
    Wait,
    decide,
    key_of,
    state_of,
)
from tests.pages import blocks_of

ALLOW, ASK, DENY = ToolRule.ALLOW, ToolRule.ASK, ToolRule.DENY
APPROVAL, TOOL_RESULT, UNKNOWN_OUTCOME = ActionKind.APPROVAL, ActionKind.TOOL_RESULT, ActionKind.UNKNOWN_OUTCOME
SPEC = ToolSpec("tool", "A tool", {"type": "object"})
CALL = ToolCall("c", "tool", {"a": 1})


async def nothing(arguments: dict[str, Any], context: CallContext) -> str:
    return ""


READS = Tool(spec=SPEC, effect=Effect.READS, carry_out=nothing)
WRITES = Tool(spec=SPEC, effect=Effect.WRITES, carry_out=nothing)
KEYED = Tool(spec=SPEC, effect=Effect.EXTERNAL, carry_out=nothing, honours_key=True)
CLIENTS = client_tool(SPEC)
TOOLS = {"reads": READS, "writes": WRITES, "keyed": KEYED, "clients": CLIENTS, "none": None}


def action(kind: ActionKind, attempt: int | None = None, call_id: str = "c", **resolution: Any) -> CallAction:
    """Without a resolution it has expired."""
    state = ActionState.RESOLVED if resolution else ActionState.EXPIRED
    return CallAction(kind, state, call_id, attempt, resolution or None)


ALLOWED = action(APPROVAL, decision="allow")
EDITED = action(APPROVAL, decision="allow", arguments={"b": 2})
DENIED = action(APPROVAL, decision="deny", message="No.")
DENIED_SILENTLY = action(APPROVAL, decision="deny")
EXPIRED = action(APPROVAL)
RETRY = action(UNKNOWN_OUTCOME, 3, decision="retry")
NO_ACTIONS: tuple[CallAction, ...] = ()


def outcome(
    tool: Tool | None,
    rule: ToolRule,
    *actions: CallAction,
    started_by: int | None = None,
    remembered: bool = False,
    tell: bool = False,
    call: ToolCall = CALL,
) -> NextStep:
    started = {} if started_by is None else {call.id: started_by}
    return decide(call, 2, tool, Rules(rule, remembered, tell), state_of(call.id, started, actions))


def brief(step: NextStep) -> str:
    match step:
        case CarryOut(arguments, notice):
            return f"carry out {arguments}{'' if notice is None else f' ({notice})'}"
        case Wait(new):
            assert (new.step, new.call_id, new.tool) == (2, "c", "tool")
            return f"{new.kind} {new.arguments}{'' if new.attempt is None else f' of attempt {new.attempt}'}"
        case KnownResult(content):
            assert step.is_error == ("Error: " in content)
            return content


POLICY_DENIES = "Denied: the policy of this session does not allow this tool."
ORIGINAL, CHANGED = "carry out {'a': 1}", "carry out {'b': 2} (Called with changed arguments: {\"b\":2})"
LOST = "The outcome of this call is unknown: the worker that carried it out was lost. It may have taken effect."


@pytest.mark.parametrize("tool", ["reads", "writes", "keyed"])
@pytest.mark.parametrize(
    ("rule", "remembered", "actions", "expected"),
    [
        (ALLOW, False, NO_ACTIONS, ORIGINAL),
        (ASK, False, NO_ACTIONS, "approval {'a': 1}"),
        (ASK, True, NO_ACTIONS, ORIGINAL),
        (DENY, False, NO_ACTIONS, POLICY_DENIES),
        (DENY, True, NO_ACTIONS, POLICY_DENIES),
        # The policy has changed since the approval.
        (DENY, True, (ALLOWED,), POLICY_DENIES),
        (ALLOW, False, (DENIED,), "Denied: No."),
        (ALLOW, False, (EDITED,), CHANGED),
        # Another call of the tool was allowed for the rest of the session, and this one was denied.
        (ASK, True, (DENIED,), "Denied: No."),
        (ASK, True, (EXPIRED,), "Denied: nobody approved this call in time."),
        (ASK, False, (ALLOWED,), ORIGINAL),
        (ASK, False, (EDITED,), CHANGED),
        (ASK, False, (DENIED,), "Denied: No."),
        (ASK, False, (DENIED_SILENTLY,), "Denied: a person did not allow this call."),
        (ASK, False, (EXPIRED,), "Denied: nobody approved this call in time."),
    ],
)
def test_a_call_that_has_not_started(
    tool: str, rule: ToolRule, remembered: bool, actions: tuple[CallAction, ...], expected: str
) -> None:
    assert brief(outcome(TOOLS[tool], rule, *actions, remembered=remembered)) == expected


@pytest.mark.parametrize(
    ("rule", "actions", "expected"),
    [
        (ALLOW, NO_ACTIONS, "tool_result {'a': 1}"),
        (ASK, NO_ACTIONS, "approval {'a': 1}"),
        (DENY, NO_ACTIONS, POLICY_DENIES),
        (ASK, (ALLOWED,), "tool_result {'a': 1}"),
        (ASK, (EDITED,), "tool_result {'b': 2}"),
        (ASK, (DENIED,), "Denied: No."),
        (ALLOW, (action(TOOL_RESULT, result="done"),), "done"),
        (ALLOW, (action(TOOL_RESULT, result={"n": [1, None]}),), '{"n":[1,null]}'),
        (ALLOW, (action(TOOL_RESULT, result=None),), "null"),
        (ALLOW, (action(TOOL_RESULT, result="no such row", is_error=True),), "Error: no such row"),
        (ALLOW, (action(TOOL_RESULT),), "Error: nobody answered this call in time."),
        (
            ASK,
            (EDITED, action(TOOL_RESULT, result="done")),
            'Called with changed arguments: {"b":2}\n\ndone',
        ),
    ],
)
def test_a_call_of_the_callers_tool(rule: ToolRule, actions: tuple[CallAction, ...], expected: str) -> None:
    assert brief(outcome(CLIENTS, rule, *actions)) == expected


@pytest.mark.parametrize("rule", ToolRule)
@pytest.mark.parametrize("tool", ["clients", "none"])
@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((action(TOOL_RESULT, result="done"),), "done"),
        ((action(TOOL_RESULT, result="no such row", is_error=True),), "Error: no such row"),
        ((ALLOWED, action(TOOL_RESULT, result="done")), "done"),
        ((EDITED, action(TOOL_RESULT, result="done")), 'Called with changed arguments: {"b":2}\n\ndone'),
        # The caller was asked and may have carried out the call.
        ((action(TOOL_RESULT),), "Error: nobody answered this call in time."),
    ],
)
def test_the_callers_result_counts_whatever_the_policy_says_now(
    rule: ToolRule, tool: str, actions: tuple[CallAction, ...], expected: str
) -> None:
    assert brief(outcome(TOOLS[tool], rule, *actions)) == expected


@pytest.mark.parametrize("rule", ToolRule)
@pytest.mark.parametrize("tool", ["writes", "none"])
@pytest.mark.parametrize(
    ("actions", "tell", "expected"),
    [
        (NO_ACTIONS, False, "unknown_outcome {'a': 1} of attempt 3"),
        ((EDITED,), False, "unknown_outcome {'b': 2} of attempt 3"),
        (NO_ACTIONS, True, LOST),
        ((action(UNKNOWN_OUTCOME, 3),), False, LOST),
        ((action(UNKNOWN_OUTCOME, 3, decision="done"),), False, "It was carried out."),
        ((action(UNKNOWN_OUTCOME, 3, decision="done", result=[7]),), False, "[7]"),
        ((action(UNKNOWN_OUTCOME, 3, decision="failed"),), False, "Error: it was not carried out."),
        ((action(UNKNOWN_OUTCOME, 3, decision="failed", result="no"),), False, "Error: no"),
        # A retry was lost too.
        ((action(UNKNOWN_OUTCOME, 2, decision="retry"),), False, "unknown_outcome {'a': 1} of attempt 3"),
    ],
)
def test_a_call_that_may_have_taken_effect(
    rule: ToolRule, tool: str, actions: tuple[CallAction, ...], tell: bool, expected: str
) -> None:
    """Whatever the policy says now."""
    assert brief(outcome(TOOLS[tool], rule, *actions, started_by=3, tell=tell)) == expected


MAY_HAVE = f"{POLICY_DENIES} An earlier try of this call may have taken effect."


@pytest.mark.parametrize(
    ("tool", "rule", "actions", "expected"),
    [
        ("keyed", ALLOW, NO_ACTIONS, ORIGINAL),
        ("keyed", ASK, (ALLOWED,), ORIGINAL),
        ("keyed", ASK, (EDITED,), CHANGED),
        ("keyed", DENY, NO_ACTIONS, MAY_HAVE),
        ("reads", ALLOW, NO_ACTIONS, ORIGINAL),
        ("writes", ALLOW, (RETRY,), ORIGINAL),
        ("writes", ASK, (ALLOWED, RETRY), ORIGINAL),
        ("writes", ASK, (EDITED, RETRY), CHANGED),
        ("writes", DENY, (ALLOWED, RETRY), MAY_HAVE),
        ("none", ALLOW, (RETRY,), 'Error: there is no tool "tool".'),
    ],
)
def test_a_call_that_is_repeated(tool: str, rule: ToolRule, actions: tuple[CallAction, ...], expected: str) -> None:
    assert brief(outcome(TOOLS[tool], rule, *actions, started_by=3)) == expected


def test_a_call_with_effects_is_repeated_only_on_request() -> None:
    """All combinations: without an answer `retry`, a started call of a tool that does not honour the key never runs."""
    answers = [None, ALLOWED, EDITED, DENIED, EXPIRED]
    unknown = [None, action(UNKNOWN_OUTCOME, 3), *(action(UNKNOWN_OUTCOME, 3, decision=d) for d in ("done", "failed"))]
    cases = list(product([WRITES, CLIENTS, None], ToolRule, answers, unknown, [False, True], [False, True]))
    for tool, rule, approval, settled, remembered, tell in cases:
        actions = [one for one in (approval, settled) if one is not None]
        step = outcome(tool, rule, *actions, started_by=3, remembered=remembered, tell=tell)
        assert not isinstance(step, CarryOut)
    assert len(cases) == 720


@pytest.mark.parametrize("rule", ToolRule)
def test_a_call_that_cannot_be_made_is_an_error(rule: ToolRule) -> None:
    long_name = ToolCall("c", "x" * 10_000, {})
    assert brief(outcome(None, rule)) == 'Error: there is no tool "tool".'
    assert len(brief(outcome(None, rule, call=long_name))) < 1000
    malformed = ToolCall("c", "tool", {MALFORMED_ARGUMENTS: "["})
    for tool in (READS, WRITES, CLIENTS):
        assert brief(outcome(tool, rule, call=malformed)).startswith("Error: the arguments of this call are not")


def test_actions_of_other_calls_do_not_count() -> None:
    others = [action(kind, call_id="other", decision="allow") for kind in ActionKind]
    assert state_of("c", {"other": 1}, others) == CallState()


def test_key_is_unique_to_the_call() -> None:
    one, other = uuid4(), uuid4()
    keys = [key_of(run_id, step, call_id) for run_id, step, call_id in product([one, other], [1, 2], ["a", "b"])]
    assert len(set(keys)) == 8
    assert key_of(one, 1, "a") == keys[0]


@pytest.mark.parametrize(
    ("policy", "reads", "writes", "clients"),
    [
        ({}, ALLOW, ASK, ALLOW),
        ({"other": DENY, "tools*": DENY}, ALLOW, ASK, ALLOW),
        ({"*": DENY}, DENY, DENY, DENY),
        ({"*": ASK}, ASK, ASK, ASK),
        ({"tool": ALLOW, "tool*": DENY, "*": DENY}, ALLOW, ALLOW, ALLOW),
        ({"*": DENY, "to*": ASK, "too*": ALLOW, "tools*": DENY}, ALLOW, ALLOW, ALLOW),
        ({"tool*": ASK, "*": ALLOW}, ASK, ASK, ASK),
    ],
)
def test_rule_of_a_tool(policy: dict[str, ToolRule], reads: ToolRule, writes: ToolRule, clients: ToolRule) -> None:
    assert (rule_of(READS, policy), rule_of(WRITES, policy), rule_of(CLIENTS, policy)) == (reads, writes, clients)


def test_a_changed_definition_is_not_allowed() -> None:
    changed = msgspec.structs.replace(WRITES, is_changed=True)
    for policy, expected in (({"*": ALLOW}, ASK), ({}, ASK), ({"*": DENY}, DENY)):
        assert rule_of(changed, policy) is expected


def test_the_documented_policy() -> None:
    [block] = blocks_of("docs/use/tools.md", "json")
    policy = msgspec.json.decode(block.text, type=CreateSessionBody).tool_policy
    assert policy
    names = ["bash", "crm_find", "crm_delete", "current_time"]
    tools = [client_tool(ToolSpec(name, "", {})) for name in names]
    assert [rule_of(tool, policy) for tool in tools] == [ALLOW, ASK, DENY, ASK]
