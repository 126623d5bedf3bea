"""Decisions about actions that need no database."""

from typing import Any

from msgspec import UNSET

from quarterdeck.core import errors, text_types
from quarterdeck.core.actors import Caller, Permission, Principal
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import ActionSettings
from quarterdeck.runs.action_model import ActionBody, ActionKind, ActionState, Decision, LimitScope, ResolveActionBody

_DECISIONS = {
    ActionKind.APPROVAL: (Decision.ALLOW, Decision.DENY),
    ActionKind.TOOL_RESULT: (),
    ActionKind.UNKNOWN_OUTCOME: (Decision.RETRY, Decision.DONE, Decision.FAILED),
    ActionKind.BUDGET: (Decision.RAISE, Decision.STOP),
}
# The other fields of each kind, with the decisions that they belong to. None: no decision is needed.
_FIELDS: dict[ActionKind, dict[str, tuple[Decision, ...] | None]] = {
    ActionKind.APPROVAL: {"message": (Decision.DENY,), "arguments": (Decision.ALLOW,), "remember": (Decision.ALLOW,)},
    ActionKind.TOOL_RESULT: {"result": None, "is_error": None},
    ActionKind.UNKNOWN_OUTCOME: {"result": (Decision.DONE, Decision.FAILED)},
    ActionKind.BUDGET: {"max_cost_usd": (Decision.RAISE,), "max_tokens": (Decision.RAISE,)},
}
_FORMS = {
    ActionKind.APPROVAL: '{"decision": "allow" or "deny", "message"?, "arguments"?, "remember"?}',
    ActionKind.TOOL_RESULT: '{"result", "is_error"?}',
    ActionKind.UNKNOWN_OUTCOME: '{"decision": "retry", "done" or "failed", "result"?}',
    ActionKind.BUDGET: '{"decision": "raise" or "stop", "max_cost_usd"?, "max_tokens"?}',
}


def expiry_seconds(kind: ActionKind, settings: ActionSettings) -> int:
    return {
        ActionKind.APPROVAL: settings.expiry_approval_seconds,
        ActionKind.TOOL_RESULT: settings.expiry_tool_result_seconds,
        ActionKind.UNKNOWN_OUTCOME: settings.expiry_unknown_outcome_seconds,
        ActionKind.BUDGET: settings.expiry_budget_seconds,
    }[kind]


def may_see_actions(principal: Principal) -> bool:
    """Whether it sees the actions of its workspace or, for a session token, those of its session."""
    return not principal.is_confined or principal.may_resolve


def may_not_raise() -> ServiceError:
    return errors.exceeds_caller("A session token cannot raise a limit. Use a key.")


def check_may_raise(principal: Principal, action: ActionBody, answer: ResolveActionBody) -> None:
    """Those who hand out tokens and keys decide how much may be spent with them."""
    if action.reached is None or answer.decision is not Decision.RAISE:
        return
    if principal.session_id is not None:
        raise may_not_raise()
    if action.reached.scope is LimitScope.DAY and not principal.may(Permission.KEY_MANAGE):
        raise errors.forbidden(Permission.KEY_MANAGE)


def check_answer(action: ActionBody, answer: ResolveActionBody) -> None:
    """Which fields the answer may have and needs depends on the kind of the action."""
    kind = action.kind
    allowed = _DECISIONS[kind]
    if answer.decision is UNSET:
        if allowed:
            raise _wrong_form(kind, "decision is required.")
    elif answer.decision not in allowed:
        raise _wrong_form(kind, f"The decision {answer.decision} does not belong to it.")
    if kind is ActionKind.TOOL_RESULT and answer.result is UNSET:
        raise _wrong_form(kind, "result is required.")
    for name in answer.__struct_fields__:
        if name == "decision" or getattr(answer, name) is UNSET:
            continue
        if name not in _FIELDS[kind]:
            raise _wrong_form(kind, f"{name} does not belong to it.")
        decisions = _FIELDS[kind][name]
        if decisions is not None and answer.decision not in decisions:
            raise _wrong_form(kind, f"{name} belongs to {' and '.join(decisions)} only.")
    _check_raise(action, answer)


def _check_raise(action: ActionBody, answer: ResolveActionBody) -> None:
    if answer.decision is Decision.RAISE:
        assert action.reached is not None
        if getattr(answer, action.reached.limit) is UNSET:
            raise _wrong_form(action.kind, f"raise needs {action.reached.limit}, the limit that was reached.")


def too_low(action: ActionBody, used: float) -> ServiceError:
    """For a new limit that is reached already."""
    reached = action.reached
    assert reached is not None
    return errors.invalid(f"{reached.limit} must be more than what has been used: {reached.amount(used)}.")


def check_same_answer(action: ActionBody, resolution: dict[str, Any]) -> None:
    """For an action that is not open any more: the same answer again is no error."""
    if action.state is ActionState.EXPIRED:
        raise errors.conflict(errors.ACTION_EXPIRED)
    if action.state is ActionState.CANCELLED:
        raise errors.conflict(errors.ACTION_CANCELLED)
    if action.resolved_by is None:
        raise errors.conflict(errors.LIMIT_WAS_RAISED)
    if not _is_same(_with_defaults(action.resolution), _with_defaults(resolution)):
        raise errors.answered_differently(_who(action.resolved_by))


def _who(caller: Caller) -> str:
    credential = "a session token" if caller.type == "session_token" else "an API key"
    label = "" if caller.label is None else f" “{caller.label}”"
    return f"{caller.display_name or 'someone'} with {credential}{label}"


def _with_defaults(resolution: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (resolution or {}).items() if (name, value) != ("is_error", False)}


def _is_same(one: Any, other: Any) -> bool:
    """Equality of JSON. In Python True equals 1, and PostgreSQL returns 1e30 as an integer."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, int) and isinstance(other, float):
        return _is_same(other, one)
    if isinstance(one, float) and isinstance(other, int):
        try:
            # Rounded: 10**30 does not equal 1e30 exactly.
            return one == float(other)
        except OverflowError:
            return False
    return bool(one == other)


def check_storable(answer: ResolveActionBody) -> None:
    for name in ("arguments", "result"):
        if (value := getattr(answer, name)) is not UNSET:
            text_types.check_storable(name, value)


def _wrong_form(kind: ActionKind, reason: str) -> ServiceError:
    return errors.invalid(f"An answer to an action of the kind {kind} is {_FORMS[kind]}. {reason}")
