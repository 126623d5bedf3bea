"""Actions in a chat: those that are open, and how the user answers them by single keys. No I/O."""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from quarterdeck.cli.action_text import limit_unit, raised_scope, result_value
from quarterdeck.cli.output import json_text
from quarterdeck.client.models import ActionKind, Decision

Data = Mapping[str, Any]


class AnswerField(StrEnum):
    """What the user types for an answer. The values are shown before the cursor."""

    DENIAL = "message"
    ARGUMENTS = "arguments"
    RESULT = "result"
    ERROR = "error"
    # Optional results of a call with an unknown outcome.
    DONE = "result, it was done"
    FAILED = "result, it failed"
    # Nothing is typed: Enter confirms.
    RETRY = "try again"
    LIMIT = "new limit"
    # Not an answer: an input to the session.
    INPUT = "input"


class Choice(Struct, frozen=True):
    key: str
    label: str
    # None: the user types `field` first.
    answer: dict[str, Any] | None = None
    field: AnswerField | None = None


_INPUT = Choice("m", "write a message", field=AnswerField.INPUT)
CHOICES: dict[str, tuple[Choice, ...]] = {
    ActionKind.APPROVAL: (
        Choice("a", "allow", {"decision": Decision.ALLOW}),
        Choice("d", "deny", field=AnswerField.DENIAL),
        Choice("e", "edit arguments", field=AnswerField.ARGUMENTS),
        Choice("s", "allow for this session", {"decision": Decision.ALLOW, "remember": "session"}),
        _INPUT,
    ),
    ActionKind.TOOL_RESULT: (
        Choice("r", "type the result", field=AnswerField.RESULT),
        Choice("x", "type an error", field=AnswerField.ERROR),
        _INPUT,
    ),
    ActionKind.UNKNOWN_OUTCOME: (
        Choice("t", "try again", field=AnswerField.RETRY),
        Choice("o", "it was done", field=AnswerField.DONE),
        Choice("f", "it failed", field=AnswerField.FAILED),
        _INPUT,
    ),
    ActionKind.BUDGET: (
        Choice("r", "raise the limit", field=AnswerField.LIMIT),
        Choice("s", "stop the run", {"decision": Decision.STOP}),
        _INPUT,
    ),
}
_HINTS = {
    AnswerField.DENIAL: "Message to the model, or nothing. Enter denies, Esc goes back.",
    AnswerField.ARGUMENTS: "Arguments as JSON. Enter allows the call with them, Esc goes back.",
    AnswerField.RESULT: "Result of the tool: JSON, or text if it is not valid JSON. Enter sends it, Esc goes back.",
    AnswerField.ERROR: "Why the tool failed. Enter sends it, Esc goes back.",
    AnswerField.DONE: "Result of the tool, or nothing. Enter marks the call as done, Esc goes back.",
    AnswerField.FAILED: "Why the tool failed, or nothing. Enter marks the call as failed, Esc goes back.",
    AnswerField.RETRY: "Enter carries out the call a second time, Esc goes back.",
    AnswerField.INPUT: "Message to the agent. Enter sends it, Esc goes back.",
}


def hint(data: Data, field: AnswerField | None) -> str:
    """The keys that answer this action, or what the user types now."""
    reached = data.get("reached") or {}
    if field is None:
        choices = CHOICES.get(data.get("kind", ""), ())
        return " · ".join(f"{choice.key} {_label(choice, reached)}" for choice in choices)
    if field is AnswerField.LIMIT:
        return f"New limit {raised_scope(reached)}, in {limit_unit(reached)}. Enter raises it, Esc goes back."
    return _HINTS[field]


def _label(choice: Choice, reached: Data) -> str:
    return f"{choice.label} {raised_scope(reached)}" if choice.field is AnswerField.LIMIT else choice.label


class InvalidAnswer(Exception):
    """The message is for the user."""


class OpenActions:
    """The data of events action.required without an answer, oldest first, and what the user types as an answer to the
    first of them."""

    def __init__(self) -> None:
        self._open: dict[str, Data] = {}
        # Actions whose answer is being sent.
        self._sending: set[str] = set()
        # What the user types, and for which action.
        self._field: AnswerField | None = None
        self._action_id: str | None = None

    def __iter__(self) -> Iterator[Data]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    @property
    def current(self) -> Data | None:
        """The one to be answered next."""
        return next((data for key, data in self._open.items() if key not in self._sending), None)

    def add(self, data: Data) -> None:
        self._open[str(data.get("action_id"))] = data

    def remove(self, data: Data) -> Data | None:
        action_id = str(data.get("action_id"))
        self._sending.discard(action_id)
        return self._open.pop(action_id, None)

    def clear(self) -> None:
        self._open.clear()
        self._sending.clear()

    def send(self, action_id: str) -> None:
        self._sending.add(action_id)

    def not_sent(self, action_id: str) -> None:
        self._sending.discard(action_id)

    # --- the answer ---

    @property
    def field(self) -> AnswerField | None:
        """None: the user chooses a key, or no action is open."""
        return None if self.is_stale else self._field

    @property
    def is_stale(self) -> bool:
        """Whether the user types an answer that is no longer wanted."""
        current = self.current
        return self._field is not None and (current is None or str(current.get("action_id")) != self._action_id)

    def choose(self, key: str) -> Choice | None:
        """None: the key means nothing."""
        current = self.current
        if current is None:
            return None
        found = next((choice for choice in CHOICES.get(current.get("kind", ""), ()) if choice.key == key), None)
        if found is not None and found.field is not None:
            self._field, self._action_id = found.field, str(current.get("action_id"))
        return found

    def back(self) -> None:
        self._field = None

    def initial_text(self) -> str:
        """What the user edits."""
        if self._field is not AnswerField.ARGUMENTS or self.current is None:
            return ""
        return json_text(self.current.get("arguments") or {}, indent=2)

    def typed(self, text: str) -> dict[str, Any]:
        """The answer. Raises InvalidAnswer."""
        current = self.current
        assert current is not None, "an answer is typed for an open action"
        match self._field:
            case AnswerField.DENIAL:
                return {"decision": Decision.DENY} | ({"message": text} if text.strip() else {})
            case AnswerField.ARGUMENTS:
                arguments = _arguments(text)
                is_changed = arguments != (current.get("arguments") or {})
                return {"decision": Decision.ALLOW} | ({"arguments": arguments} if is_changed else {})
            case AnswerField.LIMIT:
                return {"decision": Decision.RAISE} | _limit(text, current.get("reached") or {})
            case AnswerField.DONE | AnswerField.FAILED as field:
                decision = Decision.DONE if field is AnswerField.DONE else Decision.FAILED
                return {"decision": decision} | (_result(text) if text.strip() else {})
            case AnswerField.RETRY:
                if text.strip():
                    raise InvalidAnswer("Enter without a text carries out the call again. Esc goes back.")
                return {"decision": Decision.RETRY}
            case AnswerField.ERROR:
                return _result(text) | {"is_error": True}
            case _:
                return _result(text)


def _result(text: str) -> dict[str, Any]:
    if not text.strip():
        raise InvalidAnswer('Type a result. An empty one is "".')
    return {"result": result_value(text)}


def _arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidAnswer(f"Not a JSON object: {error}") from None


def _limit(text: str, reached: Data) -> dict[str, Any]:
    name = str(reached.get("limit"))
    plain = text.strip().removeprefix("$").replace(",", "").replace("_", "")
    try:
        value = float(plain) if name == "max_cost_usd" else int(plain)
    except ValueError:
        raise InvalidAnswer(f"{text.strip()!r} is not a number.") from None
    if not math.isfinite(value):
        raise InvalidAnswer("The new limit must be a finite number.")
    if not value > float(reached.get("used") or 0):
        raise InvalidAnswer(f"The new limit must be above what is used: {reached.get('used')}.")
    return {name: value}
