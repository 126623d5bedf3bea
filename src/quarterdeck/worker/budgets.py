"""What a run does at a limit of cost or tokens: wait for an answer, or end. Pure functions, no I/O."""

from quarterdeck.runs.actions.model import ActionKind, ActionState, LimitScope, NewAction, ReachedLimit

_SCOPES = {
    LimitScope.RUN: "for this run",
    LimitScope.SESSION: "for this session",
    LimitScope.DAY: "per day for this workspace",
}


def budget_action(reached: ReachedLimit) -> NewAction:
    reason = f"Reached the limit of {_limit(reached)}: {reached.amount(reached.used)} used."
    return NewAction(kind=ActionKind.BUDGET, reason=reason, reached=reached)


def stop_reason(reached: ReachedLimit, stopped: ActionState) -> str:
    reason = f"Stopped at the limit of {_limit(reached)}"
    return f"{reason}: nobody raised it in time." if stopped is ActionState.EXPIRED else f"{reason}."


def _limit(reached: ReachedLimit) -> str:
    return f"{reached.amount(reached.maximum)} {_SCOPES[reached.scope]}"
