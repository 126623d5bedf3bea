"""The conversation as a state machine, and how it looks: without a terminal, a server or a clock."""

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from quarterdeck.cli.chat_view import clean, cut, lines_of, live_lines, plain, wrap
from quarterdeck.cli.conversation import Block, Cancel, Conversation, Kind, Leave, Stage, Stay
from quarterdeck.cli.watch import as_line, as_text
from quarterdeck.client.models import Delta, Event
from quarterdeck.conversations.runs.model import Outcome

SESSION = UUID(int=1)
RUN = UUID(int=2)
NEXT_RUN = UUID(int=3)


class Log:
    """Entries as a server writes them."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.last_id = 0

    def __call__(self, type: str, run_id: UUID = RUN, **data: Any) -> list[Block]:
        self.last_id += 1
        return self.conversation.event(entry(self.last_id, type, run_id, **data))

    def delta(self, text: str, run_id: UUID = RUN, attempt: int = 1) -> None:
        self.conversation.delta(Delta(SESSION, run_id, attempt, text))


def entry(id: int, type: str, run_id: UUID = RUN, **data: Any) -> Event:
    return Event(id, SESSION, run_id, type, datetime(2026, 3, 2, tzinfo=UTC), data)


@pytest.fixture
def talk() -> Conversation:
    conversation = Conversation()
    conversation.resumed()
    return conversation


@pytest.fixture
def log(talk: Conversation) -> Log:
    return Log(talk)


def shown(blocks: list[Block]) -> list[tuple[Kind, str]]:
    return [(block.kind, block.text) for block in blocks if block.kind is not Kind.PROGRESS]


def begin(talk: Conversation, log: Log, text: str = "first") -> None:
    """An input of ours that started a run, which has taken it up."""
    number = talk.send(text)
    talk.answered(number, Outcome.NEW_RUN, RUN)
    log("input.accepted", input_id=f"id of {text}", text=text)
    log("run.started", attempt=1)
    log("input.consumed", input_id=f"id of {text}", step=1)


@pytest.mark.parametrize("answer_first", [True, False])
def test_an_input_is_sent_accepted_and_taken_up(talk: Conversation, log: Log, answer_first: bool) -> None:
    number = talk.send("hello")
    assert [one.stage for one in talk.waiting] == [Stage.SENDING]
    accepted = talk.answered(number, Outcome.NEW_RUN, RUN) if answer_first else []
    accepted += log("input.accepted", input_id="i", text="hello")
    accepted += talk.answered(number, Outcome.NEW_RUN, RUN)
    assert accepted == [Block(Kind.PROGRESS, "accepted, started a run: hello")], "told once, whoever tells first"
    assert talk.active_run == RUN
    log("run.started", attempt=1)
    assert shown(log("input.consumed", input_id="i", step=1)) == [
        (Kind.INPUT, "hello"),
        (Kind.NOTE, "started a run · taken up at step 1"),
    ]
    assert talk.waiting == []
    assert talk.answered(number, Outcome.NEW_RUN, RUN) == [], "an answer that comes last changes nothing"


def test_steering(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    number = talk.send("to the left")
    assert talk.answered(number, Outcome.STEERED, RUN)
    assert log("input.accepted", input_id="s", text="to the left") == []
    assert talk.waiting[0].stage is Stage.STEERED
    assert shown(log("message", role="assistant", text="one")) == [(Kind.ANSWER, "one")]
    assert shown(log("input.consumed", input_id="s", step=2))[1] == (Kind.NOTE, "steered the run · taken up at step 2")


def test_the_log_alone_tells_starting_from_steering(talk: Conversation, log: Log) -> None:
    log("input.accepted", input_id="a", text="theirs")
    log("input.accepted", input_id="b", text="theirs too")
    assert [one.stage for one in talk.waiting] == [Stage.STARTED, Stage.STEERED]
    log("run.started", attempt=1)
    note = shown(log("input.consumed", input_id="a", step=1))[1]
    assert note == (Kind.NOTE, "sent from elsewhere · started a run · taken up at step 1")


def test_the_same_text_twice_is_two_inputs(talk: Conversation, log: Log) -> None:
    talk.send("go on")
    talk.send("go on")
    log("input.accepted", input_id="a", text="go on")
    assert [one.input_id for one in talk.waiting] == ["a", None]
    log("input.accepted", input_id="b", text="go on")
    assert [one.input_id for one in talk.waiting] == ["a", "b"]


def test_a_refused_input_is_shown_with_the_reason(talk: Conversation) -> None:
    number = talk.send("hello")
    assert shown(talk.refused(number, "The session is archived.")) == [
        (Kind.INPUT, "hello"),
        (Kind.TROUBLE, "not accepted: The session is archived."),
    ]
    assert talk.idle


def test_the_stored_answer_takes_the_place_of_the_live_text(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    log.delta("Hel")
    log.delta("lo")
    assert talk.streaming == "Hello"
    assert shown(log("message", role="assistant", text="Hello!")) == [(Kind.ANSWER, "Hello!")]
    assert talk.streaming == ""


def test_live_text_of_an_earlier_attempt_is_void(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    log.delta("old")
    log("run.requeued", reason="Its worker was lost.")
    log("run.started", attempt=2)
    log.delta("late", attempt=1)
    assert talk.streaming == ""
    log.delta("new", attempt=2)
    assert talk.streaming == "new"


def test_live_text_that_lacks_a_piece_says_so(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    log.delta("The beginning")
    talk.resumed()
    assert talk.streaming == ""
    log.delta("the end")
    assert talk.streaming == "… the end"
    log("message", role="assistant", text="The beginning and the end")
    log.delta("Next")
    assert talk.streaming == "Next"


def test_nothing_is_taken_twice(talk: Conversation) -> None:
    event = entry(7, "message", role="assistant", text="once")
    assert len(talk.event(event)) == 1
    assert talk.event(event) == []


def test_a_tool_is_one_line_when_its_result_is_there(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    assert log("tool.call", call_id="c", name="read", arguments={"path": "x"}) == []
    assert talk.calls == ['read({"path":"x"})']
    assert shown(log("tool.result", call_id="c", name="read", text="y")) == [(Kind.TOOL, 'read({"path":"x"}) → y')]
    assert talk.calls == []


def test_a_cancelled_run_leaves_what_it_had_begun(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    log("tool.call", call_id="c", name="now", arguments={})
    log.delta("Half an ans")
    talk.send("too late")
    log("input.accepted", input_id="l", text="too late")
    assert shown(log("input.discarded", input_id="l", reason="The run was cancelled."))[1] == (
        Kind.TROUBLE,
        "discarded: The run was cancelled.",
    )
    assert shown(log("run.cancelled", discarded_input_ids=["l"])) == [
        (Kind.TOOL, "now() → no result"),
        (Kind.ANSWER, "Half an ans"),
        (Kind.NOTE, "cut off here, and not kept"),
        (Kind.TROUBLE, "The run was cancelled."),
    ]
    assert talk.idle


def test_a_failed_run_hands_inputs_on(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    talk.answered(talk.send("next"), Outcome.STEERED, RUN)
    log("input.accepted", input_id="n", text="next")
    blocks = shown(log("run.failed", reason="No.", next_run_id=str(NEXT_RUN)))
    assert blocks == [(Kind.TROUBLE, "The run failed: No."), (Kind.NOTE, "1 input handed to the next run.")]
    assert talk.active_run == NEXT_RUN
    log("run.started", NEXT_RUN, attempt=1)
    note = shown(log("input.consumed", NEXT_RUN, input_id="n", step=1))[1]
    assert note == (Kind.NOTE, "handed to the next run · taken up at step 1")


def test_entries_of_a_newer_server_are_passed_over(talk: Conversation, log: Log) -> None:
    assert log("something.new", text="?") == []
    assert talk.position == 1


def test_ctrl_c_cancels_then_leaves(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    assert talk.interrupted(100.0) == Cancel(RUN)
    assert talk.interrupted(101.9) == Leave()


def test_ctrl_c_later_cancels_again(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    assert talk.interrupted(100.0) == Cancel(RUN)
    assert talk.interrupted(102.1) == Cancel(RUN)


def test_ctrl_c_leaves_when_nothing_runs(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    log("run.succeeded")
    assert talk.interrupted(100.0) == Leave()


def test_ctrl_c_with_something_unsent_warns_first(talk: Conversation) -> None:
    talk.send("on its way")
    assert talk.interrupted(100.0) == Stay("1 input not sent yet. Ctrl-C again leaves.")
    assert talk.interrupted(101.0) == Leave()


# --- how it looks ---


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]52;c;aGk=\x1b\\text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1bPq\x1b\\text", "text"),
        ("\x1bcreset", "reset"),
        ("over\rwritten\b\x7f", "overwritten"),
        ("two\r\nlines\u2028three", "two\nlines\nthree"),
        ("turned \u202eround", "turned round"),
        ("cut \x1b[3", "cut 3"),
        ("\x1b]never ended\nnext", "\nnext"),
        ("é 漢 👍", "é 漢 👍"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(text: str, harmless: str) -> None:
    assert clean(text) == harmless
    every = "".join(chr(code) for code in range(0xA0)) + text
    for block in (Block(kind, every) for kind in Kind):
        written = plain(block) + "".join(part for line in lines_of(block, 30) for _, part in line)
        assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", written) is None


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("  indented line of code", 12, ["  indented", "line of code"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
        ("a\n\nb", 5, ["a", "", "b"]),
        ("exactly ten", 11, ["exactly ten"]),
        ("          x", 4, ["    ", "    ", "  x"]),
    ],
)
def test_lines_are_broken_between_words(text: str, columns: int, lines: list[str]) -> None:
    assert list(wrap(text, columns)) == lines


def test_what_is_cut_says_so() -> None:
    assert cut("short", 5) == "short"
    assert cut("longer", 5) == "long…"
    assert cut("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (12, 4), (5, 1), (200, 60)])
def test_what_is_drawn_anew_never_outgrows_the_screen(talk: Conversation, log: Log, columns: int, rows: int) -> None:
    begin(talk, log)
    for number in range(9):
        talk.send(f"input {number} " + "and more " * 20)
    log.delta("A long answer. " * 500)
    lines = live_lines(talk, columns, rows)
    assert len(lines) <= rows
    widest = max(sum(len(text) for _, text in line) for line in lines)
    assert widest <= max(columns, 10)


def test_a_screen_shows_the_end_of_a_long_answer_and_what_waits(talk: Conversation, log: Log) -> None:
    begin(talk, log)
    talk.answered(talk.send("turn left"), Outcome.STEERED, RUN)
    log.delta("\n".join(f"line {number}" for number in range(100)))
    texts = ["".join(text for _, text in line) for line in live_lines(talk, 60, 8)]
    assert texts[-3:] == [
        "› turn left",
        "  accepted · steered the run · not taken up yet",
        "● working · Ctrl-C cancels",
    ]
    assert "line 99" in texts
    assert "line 50" not in texts


# --- qd watch ---


def test_an_entry_as_text_is_indented_and_harmless() -> None:
    text = as_text(entry(7, "message", role="assistant", text="one\n\x1b[2Jtwo"))
    first, second = text.split("\n")
    assert first.split()[0] == "7"
    assert first.endswith("  one")
    assert second.strip() == "two"
    assert first.index("one") == second.index("two")


def test_an_entry_of_an_unknown_type_is_shown_whole() -> None:
    assert '{"colour":"red"}' in as_text(entry(7, "something.new", colour="red"))


def test_an_entry_as_json_is_one_harmless_line_with_the_same_content() -> None:
    event = entry(7, "message", role="assistant", text="a\n\x1b\x9b\u202eb")
    line = as_line(event)
    assert line.isprintable()
    assert msgspec.json.decode(line, type=Event) == event
