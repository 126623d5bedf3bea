"""Converts between the session's log and the turns of the conversation, and decides the next step of a run.

The log is the journal: after a crash the next attempt reads from it how far the run had come. Pure functions, no I/O.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from uuid import UUID

import msgspec

from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.context import NOT_CARRIED_OUT, cut_result, ends_exchange, summary_turn
from quarterdeck.models.model import (
    AssistantTurn,
    CutOff,
    ResultImage,
    Step,
    ToolCall,
    ToolResult,
    Turn,
    TurnOrigin,
    UserTurn,
)
from quarterdeck.runs.model import RESULT_CUT, RESULT_LEFT_OUT, Entry, attachments_of

MODEL, TOOLS, END = "model", "tools", "end"

_NO_RESULT = "There is no result: the run ended. The call may have taken effect."
_LEFT_OUT = "The result of this call is left out: the provider refused a request with it."
_CORRECTED = (
    "Your answer did not match the required JSON Schema. Answer again with JSON that matches, and nothing else.\n\n"
    "What did not match: "
)


def entries_of(step: Step, mismatch: str | None = None) -> list[NewEvent]:
    """The log entries for one answer of the model. The message comes first, even if its text is empty: it carries the
    provider's record. `mismatch`: why it does not match the output schema."""
    turn = step.turn
    data = {"role": "assistant", "text": turn.text} | ({} if mismatch is None else {"mismatch": mismatch})
    data |= {} if turn.cut_off is None else {"cut_off": turn.cut_off}
    data |= {"reasoning": step.reasoning} if step.reasoning else {}
    data |= {"sources": msgspec.to_builtins(step.sources)} if step.sources else {}
    message = NewEvent(EventType.MESSAGE, data, turn.record)
    calls = [
        NewEvent(EventType.TOOL_CALL, {"call_id": call.id, "name": call.name, "arguments": call.arguments})
        for call in turn.tool_calls
    ]
    return [message, *calls]


def entry_of(result: ToolResult) -> NewEvent:
    data = {"call_id": result.call_id, "name": result.name, "text": result.content}
    images = {"images": msgspec.to_builtins(result.images)} if result.images else {}
    error = {"is_error": True} if result.is_error else {}
    return NewEvent(EventType.TOOL_RESULT, data | images | error)


def compaction_entry(summary: str, dropped_turns: int, kept_answers: int) -> NewEvent:
    """`dropped_turns`: how many the summary stands for, those of earlier summaries included."""
    data = {"dropped_turns": dropped_turns, "kept_answers": kept_answers, "summary": summary}
    return NewEvent(EventType.CONTEXT_COMPACTED, data)


def summarised_turns(log: Iterable[Entry]) -> int:
    """How many turns the summary in it stands for."""
    return sum(entry.data["dropped_turns"] for entry in log if entry.type == EventType.CONTEXT_COMPACTED)


def turns_of(log: Iterable[Entry], run_id: UUID) -> list[Turn]:
    """The conversation up to now, for the run that continues it.

    An input is placed where it was consumed. Tool results follow their calls directly, as providers require, even if an
    input was consumed in between (after the loss of a worker). Open calls of earlier runs get a placeholder result,
    which tells whether the call may have taken effect. The log may be truncated at its start: entries that refer to a
    missing one are skipped.
    """
    turns: list[Turn] = []
    answer: AssistantTurn | None = None
    answered_by: UUID | None = None
    # Calls of the last answer that may have taken effect.
    begun: set[str] = set()
    summary: str | None = None
    for entry in log:
        data = entry.data
        match entry.type:
            case EventType.INPUT_CONSUMED if entry.text is not None:
                attachments = attachments_of(data.get("attachments"))
                input_id = data.get("copy_of", data["input_id"])
                turns.append(UserTurn(entry.text, entry.run_id, attachments, input_id=input_id))
            case EventType.MESSAGE:
                _close_calls(turns, begun)
                begun = set()
                # A newer release may know other reasons.
                cut_off = CutOff(data["cut_off"]) if data.get("cut_off") in list(CutOff) else None
                answer, answered_by = AssistantTurn(data["text"], [], entry.record, cut_off), entry.run_id
                turns += [answer, *_correction(data.get("mismatch"), entry.run_id)]
            case EventType.TOOL_CALL if answer is not None:
                answer.tool_calls.append(ToolCall(data["call_id"], data["name"], data["arguments"]))
            case EventType.TOOL_RESULT if answer is not None and entry.text == RESULT_LEFT_OUT:
                add_result(turns, ToolResult(data["call_id"], data["name"], _LEFT_OUT))
            case EventType.TOOL_RESULT if answer is not None:
                images = msgspec.convert(data.get("images", ()), tuple[ResultImage, ...])
                is_error = data.get("is_error", False)
                result = ToolResult(data["call_id"], data["name"], data["text"], images, is_error=is_error)
                add_result(turns, cut_result(result) if entry.text == RESULT_CUT else result)
            case EventType.TOOL_STARTED | EventType.ACTION_REQUIRED:
                begun.add(data["call_id"])
            case EventType.CONTEXT_COMPACTED:
                # In place of what read_conversation() leaves out because of it.
                summary = data["summary"]
    if answered_by != run_id:
        _close_calls(turns, begun)
    turns = _without_copies(turns)
    return turns if summary is None else [summary_turn(summary), *turns]


def _without_copies(turns: Sequence[Turn]) -> list[Turn]:
    """Leaves one of an input and its copies by retries. If the exchange of the retried run is still the last one, it
    goes on, and the copies are left out. If the session has got an answer since, the input is shown where it was
    repeated."""
    # The positions of the inputs that are shown, and of their copies by run.
    shown: dict[str, int] = {}
    copies: defaultdict[UUID | None, list[int]] = defaultdict(list)
    # How many exchanges have ended before each turn.
    ended = list(accumulate((ends_exchange(turns, at) for at in range(len(turns))), initial=0))
    for at, turn in enumerate(turns):
        if isinstance(turn, UserTurn) and turn.input_id is not None and shown.setdefault(turn.input_id, at) != at:
            copies[turn.run_id].append(at)
    hidden: set[int] = set()
    kept = list(turns)
    for run_id, positions in copies.items():
        repeated = {at: turn.input_id for at in positions if isinstance(turn := turns[at], UserTurn) and turn.input_id}
        originals = [shown[input_id] for input_id in repeated.values()]
        if ended[max(originals)] == ended[positions[0]]:
            hidden.update(positions)
            # The retry has consumed them, too.
            for at in originals:
                kept[at] = msgspec.structs.replace(turns[at], run_id=run_id)
        else:
            hidden.update(originals)
            shown |= {input_id: at for at, input_id in repeated.items()}
    return [turn for at, turn in enumerate(kept) if at not in hidden]


def add_result(turns: list[Turn], result: ToolResult) -> None:
    """Insert the result behind its call and the other results, before inputs that were consumed later."""
    position = len(turns)
    while position > 0 and isinstance(turns[position - 1], UserTurn):
        position -= 1
    turns.insert(position, result)


def _close_calls(turns: list[Turn], begun: set[str]) -> None:
    for call in open_calls(turns):
        add_result(turns, ToolResult(call.id, call.name, _NO_RESULT if call.id in begun else NOT_CARRIED_OUT))


def next_step(turns: Sequence[Turn]) -> str:
    if open_calls(turns):
        return TOOLS
    last = turns[-1] if turns else None
    return END if isinstance(last, AssistantTurn) else MODEL


def answer_turns(step: Step, run_id: UUID, mismatch: str | None) -> list[Turn]:
    """What a stored step adds to the turns."""
    return [step.turn, *_correction(mismatch, run_id)]


def _correction(mismatch: str | None, run_id: UUID | None) -> list[Turn]:
    """Tells the model why its answer does not match the output schema."""
    if mismatch is None:
        return []
    return [UserTurn(_CORRECTED + mismatch, run_id, origin=TurnOrigin.CORRECTION)]


def cut_off_of(turns: Sequence[Turn]) -> CutOff | None:
    """Why the answer that the turns end with was cut off. None: it was not, or they do not end with one."""
    last = next((turn for turn in reversed(turns) if not _is_correction(turn)), None)
    return last.cut_off if isinstance(last, AssistantTurn) else None


def _is_correction(turn: Turn) -> bool:
    return isinstance(turn, UserTurn) and turn.origin is TurnOrigin.CORRECTION


def mismatch_of(turns: Sequence[Turn]) -> str:
    """What the last correction says about the answer."""
    last = next(turn for turn in reversed(turns) if isinstance(turn, UserTurn) and _is_correction(turn))
    return last.text.removeprefix(_CORRECTED)


def corrections(turns: Sequence[Turn], run_id: UUID) -> int:
    """How many answers of the run in a row, up to the last one, did not match the output schema."""
    count = 0
    for turn in reversed(turns):
        if isinstance(turn, UserTurn) and turn.origin is TurnOrigin.CORRECTION and turn.run_id == run_id:
            count += 1
        elif not isinstance(turn, AssistantTurn) or turn.tool_calls:
            break
    return count


def open_calls(turns: Sequence[Turn]) -> list[ToolCall]:
    """Calls of the last answer that have no result. Of several with the same id only the first: a person who approves
    it must not approve others with it."""
    done: set[str] = set()
    for turn in reversed(turns):
        if isinstance(turn, ToolResult):
            done.add(turn.call_id)
        elif isinstance(turn, AssistantTurn):
            first = {call.id: call for call in reversed(turn.tool_calls)}
            return [call for call in turn.tool_calls if call.id not in done and first[call.id] is call]
    return []
