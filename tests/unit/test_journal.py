"""The log read as a conversation: what a run does next after any stop."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from quarterdeck.events.model import NewEvent
from quarterdeck.models.model import AssistantTurn, CutOff, ResultImage, Step, ToolCall, ToolResult, Turn, UserTurn
from quarterdeck.runs.model import Entry
from quarterdeck.worker.journal import (
    END,
    MODEL,
    TOOLS,
    add_result,
    corrections,
    cut_off_of,
    entries_of,
    entry_of,
    next_step,
    open_calls,
    turns_of,
)

RUN = uuid4()


def entry(type_: str, run_id: UUID = RUN, record: Any = None, **data: Any) -> Entry:
    return Entry(run_id, type_, data, record)


def consumed(name: str, run_id: UUID = RUN) -> Entry:
    return Entry(run_id, "input.consumed", {"input_id": name, "step": 1}, None, f"text of {name}")


def copied(name: str, original: str, run_id: UUID) -> Entry:
    """A copy that a retry has made."""
    data = {"input_id": name, "step": 1, "copy_of": original}
    return Entry(run_id, "input.consumed", data, None, f"text of {name}")


def said(text: str, run_id: UUID = RUN) -> Entry:
    return entry("message", run_id, {"raw": text}, role="assistant", text=text)


def called(name: str, run_id: UUID = RUN) -> Entry:
    return entry("tool.call", run_id, call_id=name, name="tool", arguments={"of": name})


def result(name: str) -> Entry:
    return entry("tool.result", call_id=name, name="tool", text=f"result of {name}")


def shape(turns: list[Turn]) -> list[str]:
    names: list[str] = []
    for turn in turns:
        match turn:
            case UserTurn(text):
                names.append(text.removeprefix("text of "))
            case AssistantTurn(text, calls):
                names.append(f"{text}[{','.join(call.id for call in calls)}]")
            case ToolResult(call_id):
                names.append(f"={call_id}")
    return names


START = [consumed("i")]


@pytest.mark.parametrize(
    ("log", "expected", "action"),
    [
        ([], [], MODEL),
        (START, ["i"], MODEL),
        ([*START, said("a")], ["i", "a[]"], END),
        ([*START, said("a"), called("1")], ["i", "a[1]"], TOOLS),
        ([*START, said("a"), called("1"), called("2"), result("1")], ["i", "a[1,2]", "=1"], TOOLS),
        ([*START, said("a"), called("1"), result("1")], ["i", "a[1]", "=1"], MODEL),
        ([*START, said("a"), consumed("j")], ["i", "a[]", "j"], MODEL),
        # A worker was lost between the call and its result; the next attempt consumed an input first.
        ([*START, said("a"), called("1"), consumed("j")], ["i", "a[1]", "j"], TOOLS),
        ([*START, said("a"), called("1"), consumed("j"), result("1")], ["i", "a[1]", "=1", "j"], MODEL),
    ],
)
def test_next_step_of_a_run(log: list[Entry], expected: list[str], action: str) -> None:
    turns = turns_of(log, RUN)
    assert shape(turns) == expected
    assert next_step(turns) == action


def test_calls_that_an_earlier_run_left_open_are_closed() -> None:
    earlier = uuid4()
    log = [consumed("i", earlier), said("a", earlier), called("1", earlier)]
    log += [consumed("j")]
    turns = turns_of(log, RUN)
    assert shape(turns) == ["i", "a[1]", "=1", "j"]
    assert next_step(turns) == MODEL
    assert shape(turns_of([*log, said("b")], RUN)) == ["i", "a[1]", "=1", "j", "b[]"]


LONG = [*START, said("a"), called("1"), called("2"), result("1"), result("2"), said("b"), consumed("j")]


@pytest.mark.parametrize("beginning", range(len(LONG)))
def test_a_log_may_begin_anywhere(beginning: int) -> None:
    """A session is read from its end, and only so far."""
    turns = turns_of([*LONG[beginning:], consumed("k")], RUN)
    assert shape(turns)[-1] == "k"
    assert next_step(turns) == MODEL
    assert not isinstance(turns[0], ToolResult)


def test_answers_that_were_cut_off() -> None:
    half = AssistantTurn("half", [], cut_off=CutOff.LENGTH)
    [entry_] = entries_of(Step(half, 1, 1))
    assert entry_.data == {"role": "assistant", "text": "half", "cut_off": "length"}
    turns = turns_of([*START, Entry(RUN, entry_.type, entry_.data, None)], RUN)
    assert turns[1:] == [half]
    assert cut_off_of(turns) is CutOff.LENGTH
    # The answer does not match the output schema, either.
    wrong = entry("message", role="assistant", text="{", mismatch="No.", cut_off="length")
    assert cut_off_of(turns_of([*START, wrong], RUN)) is CutOff.LENGTH
    assert cut_off_of([*turns, UserTurn("Go on")]) is None
    assert cut_off_of([AssistantTurn("whole", [])]) is None
    assert cut_off_of([]) is None
    unknown = entry("message", role="assistant", text="a", cut_off="of a newer release")
    assert cut_off_of(turns_of([*START, unknown], RUN)) is None


def test_entries_are_read_as_written() -> None:
    turn = AssistantTurn("text", [ToolCall("1", "tool", {"x": 1}), ToolCall("2", "tool", {})], {"raw": [1]})
    results = [
        ToolResult("1", "tool", "done"),
        ToolResult("2", "tool", "", (ResultImage(sha256="ab", media_type="image/png", bytes=3),), is_error=True),
    ]
    written: list[NewEvent] = [*entries_of(Step(turn, 1, 2)), *map(entry_of, results)]
    log = [*START, *(Entry(RUN, event.type, event.data, event.record) for event in written)]
    assert turns_of(log, RUN) == [UserTurn("text of i", RUN, input_id="i"), turn, *results]
    assert "images" not in written[-2].data


def test_a_result_goes_behind_its_calls() -> None:
    turns: list[Turn] = [AssistantTurn("a", [ToolCall("1", "t", {})]), UserTurn("j")]
    add_result(turns, ToolResult("1", "t", "done"))
    assert shape(turns) == ["a[1]", "=1", "j"]


def test_an_input_without_its_text_is_skipped() -> None:
    """Of a log whose older part is gone."""
    log = [Entry(RUN, "input.consumed", {"input_id": "i", "step": 1}, None), consumed("j")]
    assert shape(turns_of(log, RUN)) == ["j"]


def test_calls_of_an_ended_run_tell_whether_they_may_have_taken_effect() -> None:
    other = uuid4()
    log = [
        *START,
        said("a", other),
        *(called(name, other) for name in "123"),
        entry("tool.started", other, call_id="1", name="tool", key="k", attempt=1),
        entry("action.required", other, call_id="2", kind="tool_result"),
        consumed("j"),
    ]
    texts = {turn.call_id: turn.content for turn in turns_of(log, RUN) if isinstance(turn, ToolResult)}
    assert texts["1"] == texts["2"] == "There is no result: the run ended. The call may have taken effect."
    assert texts["3"] == "Not carried out: the run ended before."
    assert next_step(turns_of(log, other)) == TOOLS


def test_of_calls_with_one_id_the_first_is_open() -> None:
    first, second = ToolCall("1", "t", {"n": 1}), ToolCall("1", "t", {"n": 2})
    turns: list[Turn] = [AssistantTurn("a", [first, second])]
    assert open_calls(turns) == [first]
    turns.append(ToolResult("1", "t", "done"))
    assert open_calls(turns) == []


FIRST, SECOND, THIRD = uuid4(), uuid4(), uuid4()
FAILED_RUN = [consumed("i", FIRST), said("a", FIRST), called("1", FIRST), result("1")]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # The exchange of the failed run goes on.
        ([consumed("i", FIRST), copied("c", "i", SECOND)], ["i"]),
        ([*FAILED_RUN, copied("c", "i", SECOND)], ["i", "a[1]", "=1"]),
        ([*FAILED_RUN[:3], copied("c", "i", SECOND)], ["i", "a[1]", "=1"]),
        ([*FAILED_RUN, copied("c", "i", SECOND), said("b", SECOND)], ["i", "a[1]", "=1", "b[]"]),
        # A retry of the retry, or of the first run again.
        ([*FAILED_RUN, copied("c", "i", SECOND), copied("d", "i", THIRD)], ["i", "a[1]", "=1"]),
        # Inputs of one retry that are consumed before different steps.
        (
            [consumed("i", FIRST), consumed("j", FIRST), copied("c", "i", SECOND), said("b"), copied("d", "j", SECOND)],
            ["i", "j", "b[]"],
        ),
        # A run that had answered and was steered.
        (
            [
                consumed("i", FIRST),
                said("a", FIRST),
                consumed("j", FIRST),
                copied("c", "i", RUN),
                copied("d", "j", RUN),
            ],
            ["i", "a[]", "j"],
        ),
        # Its input was never consumed, has expired, or is not read.
        ([*FAILED_RUN, copied("c", "i", SECOND), copied("k", "j", SECOND)], ["i", "a[1]", "=1", "k"]),
        ([copied("c", "i", SECOND), copied("d", "i", THIRD)], ["c"]),
        # The session has got another answer since.
        (
            [*FAILED_RUN, consumed("j"), said("b"), copied("c", "i", SECOND)],
            ["a[1]", "=1", "j", "b[]", "c"],
        ),
        (
            [consumed("h", FIRST), *FAILED_RUN, said("b"), copied("c", "h", SECOND), copied("d", "i", SECOND)],
            ["a[1]", "=1", "b[]", "c", "d"],
        ),
        (
            [consumed("i", FIRST), said("b"), copied("c", "i", SECOND), said("d"), copied("e", "i", THIRD), said("f")],
            ["b[]", "d[]", "e", "f[]"],
        ),
        ([consumed("i", FIRST), said("b"), consumed("j"), copied("c", "i", THIRD)], ["b[]", "j", "c"]),
    ],
)
def test_an_input_that_was_retried_is_shown_once(log: list[Entry], expected: list[str]) -> None:
    assert shape(turns_of(log, THIRD)) == expected


def test_the_inputs_of_an_exchange_that_goes_on_belong_to_the_retry() -> None:
    turns = turns_of([*FAILED_RUN, copied("c", "i", SECOND)], SECOND)
    assert turns[0] == UserTurn("text of i", SECOND, input_id="i")


def test_a_corrected_answer_ends_no_exchange() -> None:
    wrong = entry("message", FIRST, role="assistant", text="a", mismatch="It is not JSON.")
    turns = turns_of([consumed("i", FIRST), wrong, copied("c", "i", SECOND)], SECOND)
    assert [type(turn) for turn in turns] == [UserTurn, AssistantTurn, UserTurn]
    assert (corrections(turns, FIRST), corrections(turns, SECOND)) == (1, 0)


def test_a_result_that_was_refused_is_said_to_be_left_out() -> None:
    left_out = Entry(FIRST, "tool.result", {"call_id": "1", "name": "tool"}, None, "left_out")
    *_, placeholder, _ = turns_of([*FAILED_RUN[:3], left_out, consumed("j")], RUN)
    assert isinstance(placeholder, ToolResult)
    assert "left out" in placeholder.content
