"""Rules of actions that the contract tests do not reach."""

from typing import Any

import pytest

from quarterdeck.core.settings import ActionSettings
from quarterdeck.runs import action_rules
from quarterdeck.runs.action_model import ActionKind


def test_each_kind_has_its_own_expiry() -> None:
    settings = ActionSettings(
        expiry_approval_seconds=1,
        expiry_tool_result_seconds=2,
        expiry_unknown_outcome_seconds=3,
        expiry_budget_seconds=4,
    )
    found = {kind.value: action_rules.expiry_seconds(kind, settings) for kind in ActionKind}
    assert found == {"approval": 1, "tool_result": 2, "unknown_outcome": 3, "budget": 4}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0}, True),
        (1e23, 10**23, True),
        (True, 1, False),
        (False, 0.0, False),
        (None, False, False),
        (1, "1", False),
        (1.5, "1.5", False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": None}, {}, False),
        ({"a": {"b": True}}, {"a": {"b": 1}}, False),
        ([], {}, False),
    ],
)
def test_equality_of_answers(one: Any, other: Any, is_same: bool) -> None:
    assert action_rules._is_same(one, other) is is_same
    assert action_rules._is_same(other, one) is is_same
