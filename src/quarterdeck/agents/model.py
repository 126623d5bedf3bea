"""What passes between a run and the model that works on it, whichever model that is."""

from typing import Any

from msgspec import Struct


class UserTurn(Struct, frozen=True):
    text: str


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    # As the model wrote them: a JSON object, if it kept to the schema.
    arguments: dict[str, Any]


class AssistantTurn(Struct, frozen=True):
    text: str
    tool_calls: list[ToolCall]
    # The provider's own form of this turn, JSON, given back to it word for word when the model is the same.
    record: Any = None


class ToolResult(Struct, frozen=True):
    call_id: str
    name: str
    content: str


Turn = UserTurn | AssistantTurn | ToolResult


class Step(Struct, frozen=True):
    """What one request to the model gave."""

    turn: AssistantTurn
    input_tokens: int
    output_tokens: int


class ModelFailure(Exception):
    """The model cannot go on, retries included. The text is for the session's log: no secret, no traceback."""
