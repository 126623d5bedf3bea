"""Decides what happens to an open tool call: carry it out, answer it, or wait for a person or the caller.

A pure function of the log and the answers. So every attempt decides the same, whatever happened to the one before it.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.models.model import MALFORMED_ARGUMENTS, ToolCall
from quarterdeck.runs.action_model import ActionKind, ActionState, CallAction, Decision, NewAction
from quarterdeck.sandbox.manifest import FileChanges
from quarterdeck.skills.model import shown
from quarterdeck.tools.model import ToolRule
from quarterdeck.tools.tool import NewImage, Tool

_OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the worker that carried it out was lost. It may have taken effect."
)
_NOT_REPEATED = "An earlier try of this call may have taken effect."


class CarryOut(Struct, frozen=True):
    arguments: dict[str, Any]
    # Told to the model with the result. None: the arguments are those of the model.
    notice: str | None = None


class KnownResult(Struct, frozen=True):
    """The result of the call is known."""

    content: str
    # To be stored with it.
    changes: FileChanges | None = None
    images: tuple[NewImage, ...] = ()
    is_error: bool = False


def failure(reason: str) -> KnownResult:
    return KnownResult(f"Error: {reason}", is_error=True)


class Wait(Struct, frozen=True):
    action: NewAction


NextStep = CarryOut | KnownResult | Wait


class CallState(Struct, frozen=True):
    """The log and the actions of one open call. None: there is no such event or action."""

    # The last attempt that started to carry out the call.
    started_by: int | None = None
    approval: CallAction | None = None
    tool_result: CallAction | None = None
    # The question about the attempt `started_by`, if its outcome is unknown.
    unknown_outcome: CallAction | None = None


class Rules(Struct, frozen=True):
    """What applies to all calls of the tool. `rule` is ignored for a tool that is not offered."""

    rule: ToolRule
    # A person allowed the tool for the rest of the session.
    is_remembered: bool
    # The model is told at once that an outcome is unknown, and nobody is asked.
    tell_unknown_outcome: bool


def key_of(run_id: UUID, step: int, call_id: str) -> str:
    """Providers may repeat call ids, so the number of the answer is part of the key."""
    return str(uuid5(run_id, f"{step}:{call_id}"))


def state_of(call_id: str, started: dict[str, int], actions: Iterable[CallAction]) -> CallState:
    """`started`: the last attempt that started each call. `actions`: those of all calls of the step."""
    started_by = started.get(call_id)
    found: dict[ActionKind, CallAction] = {}
    for action in actions:
        is_earlier_try = action.kind is ActionKind.UNKNOWN_OUTCOME and action.attempt != started_by
        if action.call_id == call_id and not is_earlier_try:
            found[action.kind] = action
    return CallState(
        started_by,
        found.get(ActionKind.APPROVAL),
        found.get(ActionKind.TOOL_RESULT),
        found.get(ActionKind.UNKNOWN_OUTCOME),
    )


def decide(call: ToolCall, step: int, tool: Tool | None, rules: Rules, state: CallState) -> NextStep:
    # First: whatever the policy says now, a call that may have taken effect is not answered as if it had not. The
    # caller was told to carry out this one.
    if state.tool_result is not None:
        return _clients_result(call, state.tool_result, state)
    if state.started_by is not None and not (tool is not None and tool.is_repeatable):
        settled = _unknown_outcome(call, step, rules, state)
        if settled is not None:
            return settled
    if tool is None:
        return failure(f'there is no tool "{shown(call.name)}".')
    if MALFORMED_ARGUMENTS in call.arguments:
        return failure("the arguments of this call are not a JSON object. Call the tool again.")
    refused = _refusal(call, step, tool, rules, state)
    if refused is not None:
        return refused
    arguments = _arguments(call, state)
    if tool.carry_out is None:
        reason = f"The caller carries out {call.name}."
        return Wait(_action(ActionKind.TOOL_RESULT, call, step, arguments, reason))
    return CarryOut(arguments, _notice(call, arguments))


def _refusal(call: ToolCall, step: int, tool: Tool, rules: Rules, state: CallState) -> NextStep | None:
    """None: the call may be carried out."""
    if rules.rule is ToolRule.DENY:
        denied = "Denied: the policy of this session does not allow this tool."
        return KnownResult(denied if state.started_by is None else f"{denied} {_NOT_REPEATED}")
    approval = state.approval
    if approval is not None:
        # Before the rule and what is remembered: a person decided about this very call.
        return _denial(approval)
    if rules.rule is ToolRule.ALLOW or rules.is_remembered:
        return None
    origin = f" {tool.origin}" if tool.origin else ""
    action = _action(ActionKind.APPROVAL, call, step, call.arguments, f"The model wants to call {call.name}{origin}.")
    return Wait(replace(action, tool_definition=tool.definition_sha256))


def _denial(approval: CallAction) -> KnownResult | None:
    if approval.state is not ActionState.RESOLVED:
        return KnownResult("Denied: nobody approved this call in time.")
    resolution = approval.resolution or {}
    if resolution.get("decision") == Decision.ALLOW:
        return None
    message = resolution.get("message")
    return KnownResult(f"Denied: {message}" if message else "Denied: a person did not allow this call.")


def _clients_result(call: ToolCall, action: CallAction, state: CallState) -> KnownResult:
    if action.state is not ActionState.RESOLVED:
        return failure("nobody answered this call in time.")
    resolution = action.resolution or {}
    content = _text(resolution.get("result"))
    answer = failure(content) if resolution.get("is_error") else KnownResult(content)
    notice = _notice(call, _arguments(call, state))
    return answer if notice is None else replace(answer, content=f"{notice}\n\n{answer.content}")


def _unknown_outcome(call: ToolCall, step: int, rules: Rules, state: CallState) -> NextStep | None:
    """None: it is to be carried out again."""
    action = state.unknown_outcome
    if action is None:
        if rules.tell_unknown_outcome:
            return KnownResult(_OUTCOME_UNKNOWN)
        reason = f"The worker that carried out {call.name} was lost. The call may have taken effect."
        arguments = _arguments(call, state)
        return Wait(_action(ActionKind.UNKNOWN_OUTCOME, call, step, arguments, reason, state.started_by))
    if action.state is not ActionState.RESOLVED:
        return KnownResult(_OUTCOME_UNKNOWN)
    resolution = action.resolution or {}
    match resolution.get("decision"):
        case Decision.RETRY:
            return None
        case Decision.DONE:
            return KnownResult(_text(resolution.get("result", "It was carried out.")))
        case _:
            return failure(_text(resolution.get("result", "it was not carried out.")))


def _action(
    kind: ActionKind, call: ToolCall, step: int, arguments: dict[str, Any], reason: str, attempt: int | None = None
) -> NewAction:
    return NewAction(
        kind=kind,
        reason=reason,
        step=step,
        call_id=call.id,
        tool=call.name,
        arguments=arguments,
        attempt=attempt,
    )


def _arguments(call: ToolCall, state: CallState) -> dict[str, Any]:
    """Those of the model, or those that a person put in their place."""
    resolution = state.approval.resolution if state.approval is not None else None
    changed: dict[str, Any] | None = (resolution or {}).get("arguments")
    return call.arguments if changed is None else changed


def _notice(call: ToolCall, arguments: dict[str, Any]) -> str | None:
    return None if arguments == call.arguments else f"Called with changed arguments: {_json(arguments)}"


def _text(result: Any) -> str:
    return result if isinstance(result, str) else _json(result)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
