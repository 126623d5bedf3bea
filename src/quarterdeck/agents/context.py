"""Which turns of a session are sent to the model, and in which order. Pure: turns in, turns out.

Tokens are estimated as a quarter of the UTF-8 bytes, rounded up: near enough for English, too many for code, and for
other scripts nearer than counting characters.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from quarterdeck.agents.model import AssistantTurn, ToolResult, Turn, UserTurn

# Role, separators and names that a provider puts around each turn.
TURN_TOKENS = 8
CUT = "\n[… cut here: the text was too long …]\n"
NO_RESULT = "No result: the run ended before this tool call was answered."
# Cutting stops here: a text of a few words is no use, and the estimate is not that exact.
_LEAST_BYTES = 512


def estimate_tokens(text: str) -> int:
    return -(-_bytes(text) // 4)


def turn_tokens(turn: Turn) -> int:
    match turn:
        case UserTurn():
            size = _bytes(turn.text)
        case ToolResult():
            size = _bytes(turn.content)
        case AssistantTurn():
            # The record repeats text and calls and holds what only the provider understands.
            size = len(msgspec.json.encode(turn.record or (turn.text, turn.tool_calls)))
    return TURN_TOKENS + -(-size // 4)


def paired(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with each tool call followed by its result, as every provider demands.

    A run that was cancelled or failed leaves calls without results, and an input may have been taken between the two.
    """
    settled: list[Turn] = []
    for start, end in _spans(turns):
        head, rest = turns[start], turns[start + 1 : end]
        settled.append(head)
        if isinstance(head, AssistantTurn):
            results: dict[str, list[ToolResult]] = defaultdict(list)
            for turn in rest:
                if isinstance(turn, ToolResult):
                    results[turn.call_id].append(turn)
            for call in head.tool_calls:
                found = results[call.id]
                settled.append(found.pop(0) if found else ToolResult(call.id, call.name, NO_RESULT))
        settled += [turn for turn in rest if not isinstance(turn, ToolResult)]
    # A result before any answer belongs to no call.
    return settled[1:] if settled and isinstance(settled[0], ToolResult) else settled


def fit(turns: Sequence[Turn], context_tokens: int, instructions: str) -> tuple[list[Turn], int]:
    """The newest turns that fit, and how many were left out.

    Left out are first the oldest exchanges (inputs and all that followed them), then the oldest steps of the newest
    exchange. The newest input and what came after the last step always stay, cut in the middle if they must be.
    """
    budget_tokens = context_tokens - estimate_tokens(instructions)
    # Sessions may be far longer than any window: what is out of reach is not even looked at.
    reach = _within_reach(turns, budget_tokens)
    kept = paired(turns[reach:])
    before = reach + len(kept)
    left = budget_tokens - sum(map(turn_tokens, kept))
    for first in (_first_exchange, _first_step):
        while left < 0 and (span := first(kept)) is not None:
            start, end = span
            left += sum(map(turn_tokens, kept[start:end]))
            del kept[start:end]
    return _cut(kept, -left) if left < 0 else kept, before - len(kept)


def _within_reach(turns: Sequence[Turn], budget_tokens: int) -> int:
    """Where the exchange begins in which the budget, spent from the end, runs out."""
    at = len(turns)
    while at > 0 and (budget_tokens >= 0 or not _begins_exchange(turns, at)):
        at -= 1
        budget_tokens -= turn_tokens(turns[at])
    return at


def _begins_exchange(turns: Sequence[Turn], at: int) -> bool:
    return at < len(turns) and isinstance(turns[at], UserTurn) and not isinstance(turns[at - 1], UserTurn)


def _spans(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """From each answer to the next; what stands before the first answer is one span of its own."""
    starts = [at for at, turn in enumerate(turns) if at == 0 or isinstance(turn, AssistantTurn)]
    return list(pairwise([*starts, len(turns)])) if starts else []


def _first_exchange(turns: Sequence[Turn]) -> tuple[int, int] | None:
    """None when only one is left."""
    return next(((0, at) for at in range(1, len(turns)) if _begins_exchange(turns, at)), None)


def _first_step(turns: Sequence[Turn]) -> tuple[int, int] | None:
    """In the only exchange left: an input that is not the newest, then a step that is not the last."""
    inputs = sum(isinstance(turn, UserTurn) for turn in turns)
    if inputs > 1:
        return 0, 1
    answers = [at for at, turn in enumerate(turns) if isinstance(turn, AssistantTurn)]
    return (answers[0], answers[1]) if len(answers) > 1 else None


def _cut(turns: list[Turn], excess_tokens: int) -> list[Turn]:
    """Shorten the longest texts until the excess is gone, or nothing worth cutting is left."""
    cut = list(turns)
    while cut and excess_tokens > 0:
        at = max(range(len(cut)), key=lambda place: _bytes(_text(cut[place])))
        before = turn_tokens(cut[at])
        size = _bytes(_text(cut[at]))
        if size <= _LEAST_BYTES:
            break
        cut[at] = _with_text(cut[at], cut_middle(_text(cut[at]), max(_LEAST_BYTES, size - 4 * excess_tokens)))
        excess_tokens -= before - turn_tokens(cut[at])
    return cut


def cut_middle(text: str, most_bytes: int) -> str:
    """At most so many bytes: the beginning and the end, which say most, around a mark."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return text
    half = max(0, most_bytes - len(CUT.encode())) // 2
    return data[:half].decode("utf-8", "ignore") + CUT + data[len(data) - half :].decode("utf-8", "ignore")


def _text(turn: Turn) -> str:
    return turn.content if isinstance(turn, ToolResult) else turn.text


def _with_text(turn: Turn, text: str) -> Turn:
    match turn:
        case UserTurn():
            return msgspec.structs.replace(turn, text=text)
        case ToolResult():
            return msgspec.structs.replace(turn, content=text)
        case AssistantTurn():
            # The record holds the whole text.
            return msgspec.structs.replace(turn, text=text, record=None)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
