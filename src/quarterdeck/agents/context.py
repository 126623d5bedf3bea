"""Selects and orders the turns that are sent to the model. Pure functions, no I/O.

Tokens are estimated as a quarter of the UTF-8 bytes, rounded up. That is close for English, too high for code, and for
other scripts closer than an estimate by characters.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, takewhile

import msgspec
from msgspec import Struct

from quarterdeck.agents.attachments import attachment_tokens
from quarterdeck.agents.model import AssistantTurn, ToolResult, Turn, TurnOrigin, UserTurn

# Overhead per turn: role, separators and names that a provider adds.
TURN_TOKENS = 8
CUT = "\n[… cut here: the text was too long …]\n"
NO_RESULT = "No result: this call was not carried out."
# Of the estimate.
BYTES_PER_TOKEN = 4
# Texts are not cut below this size: a few words are useless, and the estimate is not that exact.
_MIN_CUT_BYTES = 512


def estimate_tokens(text: str) -> int:
    return -(-_bytes(text) // BYTES_PER_TOKEN)


def turn_tokens(turn: Turn) -> int:
    match turn:
        case UserTurn():
            return TURN_TOKENS + estimate_tokens(turn.text) + attachment_tokens(turn)
        case ToolResult():
            return TURN_TOKENS + estimate_tokens(turn.content) + attachment_tokens(turn)
        case AssistantTurn():
            # The record contains text and calls, and opaque data of the provider.
            size = len(msgspec.json.encode(turn.record or (turn.text, turn.tool_calls)))
    return TURN_TOKENS + -(-size // BYTES_PER_TOKEN)


def with_results(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with each tool call directly followed by its result, as all providers require.

    Calls of a cancelled or failed run may lack results; these get a placeholder. Inputs between a call and its result
    are moved behind the result.
    """
    ordered: list[Turn] = []
    for start, end in _spans(turns):
        head, rest = turns[start], turns[start + 1 : end]
        ordered.append(head)
        if isinstance(head, AssistantTurn):
            results: dict[str, list[ToolResult]] = defaultdict(list)
            for turn in rest:
                if isinstance(turn, ToolResult):
                    results[turn.call_id].append(turn)
            for call in head.tool_calls:
                found = results[call.id]
                ordered.append(found.pop(0) if found else ToolResult(call.id, call.name, NO_RESULT))
        ordered += [turn for turn in rest if not isinstance(turn, ToolResult)]
    # A result before the first answer belongs to no call.
    return ordered[1:] if ordered and isinstance(ordered[0], ToolResult) else ordered


def fit_turns(turns: Sequence[Turn], context_tokens: int, instructions: str) -> tuple[list[Turn], int]:
    """The newest turns that fit into the context, and the number of dropped turns.

    The oldest exchanges (inputs with everything that followed them) are dropped first, then the oldest steps of the
    newest exchange. The newest input and everything from the last step on stay, with long texts cut in the middle. A
    summary of earlier turns stays too.
    """
    if is_summary(turns):
        rest, dropped = fit_turns(turns[1:], context_tokens - turn_tokens(turns[0]), instructions)
        return [turns[0], *rest], dropped
    budget_tokens = context_tokens - estimate_tokens(instructions)
    # Sessions may be far longer than any context: turns that cannot fit are not processed at all.
    first_kept = _first_in_budget(turns, budget_tokens)
    kept = with_results(turns[first_kept:])
    before = first_kept + len(kept)
    left = budget_tokens - sum(map(turn_tokens, kept))
    for spans in (_older_exchanges, _older_inputs, _older_steps):
        left = _drop(kept, spans(kept), left)
    return _cut(kept, -left) if left < 0 else kept, before - len(kept)


def _drop(turns: list[Turn], spans: Sequence[tuple[int, int]], left_tokens: int) -> int:
    """Removes adjacent spans, the first ones first, until the rest fits. Returns the tokens that are left then."""
    count = 0
    while left_tokens < 0 and count < len(spans):
        left_tokens += sum(map(turn_tokens, turns[slice(*spans[count])]))
        count += 1
    if count:
        del turns[spans[0][0] : spans[count - 1][1]]
    return left_tokens


def newest_turns(turns: Sequence[Turn], max_tokens: int) -> list[Turn]:
    """The end of the conversation from which `fit_turns` selects: whole steps of at least `max_tokens`, the newest
    input, and the summary."""
    if is_summary(turns):
        return [turns[0], *newest_turns(turns[1:], max_tokens)]
    at = len(turns)
    while at > 0 and (max_tokens > 0 or isinstance(turns[at], ToolResult)):
        at -= 1
        max_tokens -= turn_tokens(turns[at])
    kept = list(turns[at:])
    if not any(map(_is_input, kept)):
        kept[:0] = list(filter(_is_input, turns[:at]))[-1:]
    return kept


def is_summary(turns: Sequence[Turn]) -> bool:
    """Whether the first turn is a summary of earlier ones."""
    return bool(turns) and isinstance(turns[0], UserTurn) and turns[0].origin is TurnOrigin.SUMMARY


class Split(Struct, frozen=True):
    """A conversation whose older part is to be summarised."""

    older: list[Turn]
    # With the newest input, which is never only summarised.
    kept: list[Turn]
    # In `kept`. The log marks the place by this number: docs/decisions/0076.
    kept_answers: int

    @property
    def older_tokens(self) -> int:
        """Without an earlier summary."""
        return sum(map(turn_tokens, self.older[is_summary(self.older) :]))


def split_turns(turns: Sequence[Turn], keep_tokens: int) -> Split | None:
    """Keeps about `keep_tokens`. None: there is no answer that could be summarised.

    Everything behind the last answer is kept: if the provider refuses it, later runs leave it out, so it must not be
    in a summary. The last answer itself is kept if the model has not seen what followed it.
    """
    answers = [at for at, turn in enumerate(turns) if isinstance(turn, AssistantTurn)]
    if not answers:
        return None
    least = 0 if all(map(_is_input, turns[answers[-1] + 1 :])) else 1
    found: tuple[int, int] | None = None
    end, left = len(turns), keep_tokens
    for count in range(least, len(answers)):
        start = _start_of(turns, answers[-count]) if count else answers[-1] + 1
        left -= sum(map(turn_tokens, turns[start:end]))
        if found is not None and left < 0:
            break
        found, end = (start, count), start
    if found is None:
        return None
    start, count = found
    kept = list(turns[start:])
    if not any(map(_is_input, kept)):
        kept[:0] = list(filter(_is_input, turns[:start]))[-1:]
    return Split(list(turns[:start]), kept, count)


def _start_of(turns: Sequence[Turn], answer: int) -> int:
    """With the inputs that it answers."""
    while answer > 0 and _is_input(turns[answer - 1]):
        answer -= 1
    return answer


def _first_in_budget(turns: Sequence[Turn], budget_tokens: int) -> int:
    """The start of the exchange in which the budget, counted from the end, is used up."""
    at = len(turns)
    while at > 0 and (budget_tokens >= 0 or not _begins_exchange(turns, at)):
        at -= 1
        budget_tokens -= turn_tokens(turns[at])
    return at


def _begins_exchange(turns: Sequence[Turn], at: int) -> bool:
    return at < len(turns) and _is_input(turns[at]) and not isinstance(turns[at - 1], UserTurn)


def ends_exchange(turns: Sequence[Turn], at: int) -> bool:
    """Whether this is an answer without calls that was not corrected."""
    turn = turns[at]
    if not isinstance(turn, AssistantTurn) or turn.tool_calls:
        return False
    following = turns[at + 1] if at + 1 < len(turns) else None
    return not (isinstance(following, UserTurn) and following.origin is TurnOrigin.CORRECTION)


def _is_input(turn: Turn) -> bool:
    return isinstance(turn, UserTurn) and turn.origin is TurnOrigin.INPUT


def _spans(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Ranges from each answer to the next. Turns before the first answer form the first range."""
    starts = [at for at, turn in enumerate(turns) if at == 0 or isinstance(turn, AssistantTurn)]
    return list(pairwise([*starts, len(turns)])) if starts else []


def _older_exchanges(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """All but the last."""
    return list(pairwise([0, *(at for at in range(1, len(turns)) if _begins_exchange(turns, at))]))


def _older_inputs(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Those before everything else, without the newest input."""
    leading = sum(1 for _ in takewhile(_is_input, turns))
    return [(at, at + 1) for at in range(min(leading, sum(map(_is_input, turns)) - 1))]


def _older_steps(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """All but the last."""
    return list(pairwise(at for at, turn in enumerate(turns) if isinstance(turn, AssistantTurn)))


def _cut(turns: list[Turn], excess_tokens: int) -> list[Turn]:
    """Shorten the longest texts until the excess is gone or all texts are short."""
    cut = list(turns)
    while cut and excess_tokens > 0:
        at = max(range(len(cut)), key=lambda place: _bytes(_text(cut[place])))
        before = turn_tokens(cut[at])
        size = _bytes(_text(cut[at]))
        if size <= _MIN_CUT_BYTES:
            break
        cut[at] = _with_text(
            cut[at], cut_middle(_text(cut[at]), max(_MIN_CUT_BYTES, size - BYTES_PER_TOKEN * excess_tokens))
        )
        excess_tokens -= before - turn_tokens(cut[at])
    return cut


def cut_middle(text: str, max_bytes: int) -> str:
    """Keep the beginning and the end, with a mark between them."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    half = max(0, max_bytes - len(CUT.encode())) // 2
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
