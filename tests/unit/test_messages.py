"""Answers of models as turns: what they write may be nested without end."""

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart

from quarterdeck.agents.messages import to_turn
from quarterdeck.agents.model import MALFORMED_ARGUMENTS


def nested(levels: int) -> str:
    return '{"a": ' + "[" * levels + "]" * levels + "}"


def arguments_of(written: str) -> dict[str, object]:
    [call] = to_turn(ModelResponse([ToolCallPart("tool", written, "1")]), "model").tool_calls
    return call.arguments


def test_arguments_are_kept_as_they_are() -> None:
    assert arguments_of('{"a": [[1]]}') == {"a": [[1]]}
    assert list(arguments_of(nested(90))) == ["a"]


@pytest.mark.parametrize("levels", [110, 500, 950, 980, 100_000])
def test_arguments_that_others_could_not_read_back_are_text(levels: int) -> None:
    """A worker may read 980 levels where an API process, called from deeper down, can only read 950."""
    assert list(arguments_of(nested(levels))) == [MALFORMED_ARGUMENTS]
