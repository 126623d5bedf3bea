"""Decisions about actions that need no database."""

from quarterdeck.conversations.actions.model import ActionKind
from quarterdeck.core.settings import ActionSettings


def expiry_seconds(kind: ActionKind, settings: ActionSettings) -> int:
    return {
        ActionKind.APPROVAL: settings.expiry_approval_seconds,
        ActionKind.TOOL_RESULT: settings.expiry_tool_result_seconds,
        ActionKind.UNKNOWN_OUTCOME: settings.expiry_unknown_outcome_seconds,
        ActionKind.BUDGET: settings.expiry_budget_seconds,
    }[kind]
