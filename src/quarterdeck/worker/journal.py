"""The session's log read as a conversation, and what is to be done next. The log is the journal: after a crash the
next attempt knows from it alone how far the run had come. No I/O, no state.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from quarterdeck.agents.model import AssistantTurn, Step, ToolCall, ToolResult, Turn, UserTurn
from quarterdeck.conversations.events.model import EventType, NewEvent
from quarterdeck.conversations.runs.model import Entry

MODEL, TOOLS, END = "model", "tools", "end"


_NOT_CARRIED_OUT = "Not carried out: the run ended before."


def entries_of(step: Step) -> list[NewEvent]:
    """What one answer of the model adds to the log. The model's own record goes with the first entry, which is there
    even if the model said nothing."""
    turn = step.turn
    message = NewEvent(EventType.MESSAGE, {"role": "assistant", "text": turn.text}, turn.record)
    calls = [
        NewEvent(EventType.TOOL_CALL, {"call_id": call.id, "name": call.name, "arguments": call.arguments})
        for call in turn.tool_calls
    ]
    return [message, *calls]


def entry_of(result: ToolResult) -> NewEvent:
    return NewEvent(EventType.TOOL_RESULT, {"call_id": result.call_id, "name": result.name, "text": result.content})


def turns_of(log: Iterable[Entry], run_id: UUID) -> list[Turn]:
    """The conversation, as `run_id` goes on with it. An input takes its place where it was consumed, not where it came
    in; results stand right behind their calls, as models want them, though an input may have been consumed between
    the two when a worker was lost there. Calls that an earlier run left open are closed. The log may begin anywhere:
    what belongs to an entry before its beginning is left out."""
    texts: dict[str, str] = {}
    turns: list[Turn] = []
    said: AssistantTurn | None = None
    said_by: UUID | None = None
    for entry in log:
        data = entry.data
        match entry.type:
            case EventType.INPUT_ACCEPTED:
                texts[data["input_id"]] = data["text"]
            case EventType.INPUT_CONSUMED if data["input_id"] in texts:
                turns.append(UserTurn(texts[data["input_id"]], entry.run_id))
            case EventType.MESSAGE:
                _close_calls(turns)
                said, said_by = AssistantTurn(data["text"], [], entry.record), entry.run_id
                turns.append(said)
            case EventType.TOOL_CALL if said is not None:
                said.tool_calls.append(ToolCall(data["call_id"], data["name"], data["arguments"]))
            case EventType.TOOL_RESULT if said is not None:
                add_result(turns, ToolResult(data["call_id"], data["name"], data["text"]))
    if said_by != run_id:
        _close_calls(turns)
    return turns


def add_result(turns: list[Turn], result: ToolResult) -> None:
    """Behind the calls and their other results, also when an input was consumed after them."""
    place = len(turns)
    while place > 0 and isinstance(turns[place - 1], UserTurn):
        place -= 1
    turns.insert(place, result)


def _close_calls(turns: list[Turn]) -> None:
    for call in open_calls(turns):
        add_result(turns, ToolResult(call.id, call.name, _NOT_CARRIED_OUT))


def next_action(turns: Sequence[Turn]) -> str:
    if open_calls(turns):
        return TOOLS
    last = turns[-1] if turns else None
    return END if isinstance(last, AssistantTurn) else MODEL


def open_calls(turns: Sequence[Turn]) -> list[ToolCall]:
    """Calls of the last answer that have no result yet."""
    done: set[str] = set()
    for turn in reversed(turns):
        if isinstance(turn, ToolResult):
            done.add(turn.call_id)
        elif isinstance(turn, AssistantTurn):
            return [call for call in turn.tool_calls if call.id not in done]
    return []
