"""Actions in words: what a run waits for, how it was answered, and the command that answers. Also costs and tokens."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quarterdeck.cli.output import cost_text, json_text
from quarterdeck.client.models import ActionBody, ActionKind, ActionState, Usage

_TITLES = {
    ActionKind.APPROVAL: "Approval required",
    ActionKind.TOOL_RESULT: "Result required",
    ActionKind.UNKNOWN_OUTCOME: "Outcome unknown",
    ActionKind.BUDGET: "Limit reached",
}
_ANSWERS = {
    ActionKind.APPROVAL: "--allow or --deny",
    ActionKind.TOOL_RESULT: "--result RESULT",
    ActionKind.UNKNOWN_OUTCOME: "--retry, --done or --failed",
    ActionKind.BUDGET: "--raise or --stop",
}
_DECISIONS = {
    "allow": "Allowed",
    "deny": "Denied",
    "retry": "Retry requested",
    "done": "Marked as done",
    "failed": "Marked as failed",
    "raise": "Limit raised",
    "stop": "Stopped",
}
_SCOPES = {"run": "of the run", "session": "of the session", "day": "of the workspace for today"}
_RAISED_SCOPES = {"run": "for this run", "session": "for this session", "day": "for the workspace, every day"}


def fields_of(action: ActionBody) -> dict[str, Any]:
    """The same fields as the data of an event."""
    found: dict[str, Any] = msgspec.to_builtins(action)
    return found | {"action_id": found["id"]}


def call_text(name: str, arguments: Mapping[str, Any] | None) -> str:
    return f"{name}({json_text(arguments) if arguments else ''})"


def subject(data: Mapping[str, Any]) -> str:
    """The call, or the limit. `data` is that of the event action.required."""
    if data.get("reached"):
        return reached_text(data["reached"])
    return call_text(str(data.get("tool") or ""), data.get("arguments"))


def title(data: Mapping[str, Any]) -> str:
    return _TITLES.get(data.get("kind", ""), "Answer required")


def required(data: Mapping[str, Any]) -> str:
    return f"{title(data)}: {subject(data)}"


def answer_options(kind: str) -> str:
    """The options of `qd actions resolve` for an action of this kind."""
    return _ANSWERS.get(ActionKind(kind) if kind in list(ActionKind) else ActionKind.APPROVAL, "")


def resolve_command(data: Mapping[str, Any]) -> str:
    return f"qd actions resolve {data.get('action_id')} {answer_options(str(data.get('kind')))}"


def reached_text(reached: Mapping[str, Any]) -> str:
    is_cost = reached.get("limit") == "max_cost_usd"
    used, maximum = (_amount(reached.get(name), is_cost=is_cost) for name in ("used", "maximum"))
    what = "" if is_cost else " tokens"
    return f"{used} of {maximum}{what} used, the limit {_SCOPES.get(reached.get('scope', ''), '')}".rstrip()


def raised_scope(reached: Mapping[str, Any]) -> str:
    """What a higher limit applies to."""
    return _RAISED_SCOPES.get(reached.get("scope", ""), "")


def limit_unit(reached: Mapping[str, Any]) -> str:
    return "US dollars" if reached.get("limit") == "max_cost_usd" else "tokens"


def answered(data: Mapping[str, Any]) -> str:
    """How an action ended. `data` is that of the event action.resolved."""
    if data.get("state") == ActionState.EXPIRED:
        return "Expired without an answer"
    if data.get("state") == ActionState.CANCELLED:
        return "Cancelled"
    answer = data.get("resolution") or {}
    # An answer of a person has the new limit.
    if answer == {"decision": "raise"}:
        return "Released: the limit was raised or its day is over"
    changed = _changed_arguments(answer, data.get("arguments"))
    return _answer(answer) + caller_text(data.get("resolved_by")) + changed + _details(answer)


def _answer(answer: Mapping[str, Any]) -> str:
    if "decision" not in answer:
        return "Error sent" if answer.get("is_error") else "Result sent"
    found = _DECISIONS.get(answer["decision"], str(answer["decision"]))
    return f"{found} for this session" if answer.get("remember") else found


def _changed_arguments(answer: Mapping[str, Any], original: object) -> str:
    arguments = answer.get("arguments", original)
    return "" if arguments == original else f" with changed arguments {json_text(arguments)}"


def _details(answer: Mapping[str, Any]) -> str:
    found = []
    if answer.get("message"):
        found.append(str(answer["message"]))
    if "result" in answer:
        result = answer["result"]
        found.append(result if isinstance(result, str) else json_text(result))
    if "max_cost_usd" in answer:
        found.append(_amount(answer["max_cost_usd"], is_cost=True))
    if "max_tokens" in answer:
        found.append(f"{_amount(answer['max_tokens'], is_cost=False)} tokens")
    return f": {', '.join(found)}" if found else ""


def caller_text(caller: Mapping[str, Any] | None) -> str:
    if not caller:
        return ""
    name = caller.get("display_name") or caller.get("label") or str(caller.get("type", "")).replace("_", " ")
    return f" by {name}"


def _amount(number: Any, *, is_cost: bool) -> str:
    if not isinstance(number, (int, float)):
        return "?"
    return cost_text(float(number)) if is_cost else f"{int(number):,}"


def result_value(given: str) -> Any:
    """JSON, or the text itself."""
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError:
        return given


def tokens_text(usage: Usage) -> str:
    cached = f" ({usage.cached_tokens / usage.input_tokens:.0%} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens} in{cached}, {usage.output_tokens} out"
