"""What passes between a run and the model that works on it, whichever model that is."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct

# Stands among a call's arguments when the model wrote no JSON object: what it wrote instead. The tools answer such a
# call with an error, so that the model can try again. The name is the one that pydantic-ai sends back to providers.
MALFORMED_ARGUMENTS = "INVALID_JSON"


class UserTurn(Struct, frozen=True):
    text: str
    # The run that took this input. None: not known, and so taken for the same run as its neighbours.
    run_id: UUID | None = None


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


class ToolSpec(Struct, frozen=True):
    name: str
    description: str
    # JSON Schema of an object.
    parameters: dict[str, Any]


class Step(Struct, frozen=True):
    """What one request to the model gave."""

    turn: AssistantTurn
    input_tokens: int
    output_tokens: int


# Called with each piece of text as it comes. For showing only: pieces of a try that failed are followed by those of
# the next from its beginning, and the turn that a step returns is what counts.
OnText = Callable[[str], None]


class Model(Protocol):
    @property
    def name(self) -> str:
        """As a session names it: `provider:name`, or `demo`."""

    async def step(self, instructions: str, turns: Sequence[Turn], tools: Sequence[ToolSpec], on_text: OnText) -> Step:
        """One request, tried once. Raises ModelFailure, or TransientFailure when another try may succeed."""


class ModelFailure(Exception):
    """The model cannot go on, retries included. The text is for the session's log: no secret, no traceback."""


class ContextExceeded(ModelFailure):
    """The provider counts more tokens than the model's window holds. Fewer turns may pass."""


class TransientFailure(Exception):
    """This try failed, the next may not. The text is fit for the session's log."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds
