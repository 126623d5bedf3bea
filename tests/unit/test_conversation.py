"""The state of a conversation and how it is shown, without terminal, server and clock."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from prompt_toolkit.utils import get_cwidth

from quarterdeck.cli import chat_view
from quarterdeck.cli.action_text import tokens_text
from quarterdeck.cli.chat_actions import AnswerField, InvalidAnswer
from quarterdeck.cli.chat_view import block_lines, live_lines, plain_text, sanitized, shortened, wrap
from quarterdeck.cli.conversation import Block, BlockKind, CancelRun, Conversation, QueuedInput, Quit, Stage, Stay
from quarterdeck.cli.output import cut, json_text
from quarterdeck.cli.watch import event_text
from quarterdeck.client.models import Delivery, Delta, Event, ModelRetry, Outcome, Usage

SESSION = UUID(int=1)
RUN = UUID(int=2)
NEXT_RUN = UUID(int=3)


class Log:
    """Events as a server writes them."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.last_id = 0

    def __call__(self, type: str, run_id: UUID = RUN, **data: Any) -> list[Block]:
        self.last_id += 1
        return self.conversation.event(make_event(self.last_id, type, run_id, **data))

    def delta(self, text: str, run_id: UUID = RUN, attempt: int = 1, offset: int | None = None) -> None:
        """Goes on with the live text unless an offset is given."""
        offset = self.conversation.live_text.length if offset is None else offset
        self.conversation.delta(Delta(SESSION, run_id, attempt, text, 1, offset))


def make_event(id: int, type: str, run_id: UUID = RUN, **data: Any) -> Event:
    return Event(id, SESSION, run_id, type, datetime(2026, 3, 2, tzinfo=UTC), data)


@pytest.fixture
def chat() -> Conversation:
    conversation = Conversation()
    conversation.stream_started()
    return conversation


@pytest.fixture
def log(chat: Conversation) -> Log:
    return Log(chat)


def shown(blocks: list[Block]) -> list[tuple[BlockKind, str]]:
    return [(block.kind, block.text) for block in blocks if block.kind is not BlockKind.PROGRESS]


def begin(chat: Conversation, log: Log, text: str = "first") -> None:
    """An input of this client that started a run, which has read it."""
    sent = chat.send(text)
    chat.accepted(sent, Outcome.NEW_RUN, RUN)
    log("input.accepted", input_id=f"id of {text}", text=text)
    log("run.started", attempt=1)
    log("input.consumed", input_id=f"id of {text}", step=1)


@pytest.mark.parametrize("response_first", [True, False])
def test_an_input_is_sent_accepted_and_read(chat: Conversation, log: Log, response_first: bool) -> None:
    sent = chat.send("hello")
    assert [one.stage for one in chat.queued] == [Stage.SENDING]
    accepted = chat.accepted(sent, Outcome.NEW_RUN, RUN) if response_first else []
    accepted += log("input.accepted", input_id="i", text="hello")
    accepted += chat.accepted(sent, Outcome.NEW_RUN, RUN)
    assert accepted == [Block(BlockKind.PROGRESS, "Started a run: hello")], "shown once, whichever arrives first"
    assert chat.active_run == RUN
    log("run.started", attempt=1)
    assert shown(log("input.consumed", input_id="i", step=1)) == [
        (BlockKind.INPUT, "hello"),
        (BlockKind.NOTE, "Started a run · Read at step 1"),
    ]
    assert chat.queued == []
    assert chat.accepted(sent, Outcome.NEW_RUN, RUN) == [], "a late response changes nothing"


def test_answers_that_were_cut_off(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    reached = "Cut off: the answer reached the limit of output tokens."
    assert shown(log("message", role="assistant", text="Half", cut_off="length")) == [
        (BlockKind.ANSWER, "Half"),
        (BlockKind.WARNING, reached),
    ]
    [(kind, text)] = shown(log("message", role="assistant", text="", cut_off="content_filter"))
    assert (kind, text) == (BlockKind.WARNING, "Cut off: the content filter of the provider ended the answer.")
    assert event_text(make_event(7, "message", role="assistant", text="Half", cut_off="length")).endswith(reached)


def test_the_hit_rate_of_a_session() -> None:
    assert tokens_text(Usage(11_000, 8_800, 200, 70, None)) == "11000 in (80% cached), 70 out"
    assert tokens_text(Usage(11_000, 0, 0, 70, None)) == "11000 in, 70 out"


def test_reasoning_and_sources(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    sources = [{"title": "A page", "url": "https://example.com/a"}, {"title": "report.pdf"}]
    listed = "Sources:\n- A page https://example.com/a\n- report.pdf"
    said: dict[str, Any] = {
        "role": "assistant",
        "text": "Yes.",
        "reasoning": "Let\nme " + "think " * 40,
        "sources": sources,
    }
    [(_, folded), *others] = shown(log("message", **said))
    assert folded.startswith("Reasoning: Let me think think")
    assert (folded[-1], len(folded)) == ("…", 112)
    assert others == [(BlockKind.ANSWER, "Yes."), (BlockKind.NOTE, listed)]
    lines = [line.strip() for line in event_text(make_event(7, "message", **said)).splitlines()]
    assert lines[0].endswith(folded)
    assert lines[1:] == ["Yes.", *listed.splitlines()]


def test_steering(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    sent = chat.send("to the left")
    assert chat.accepted(sent, Outcome.STEERED, RUN)
    assert log("input.accepted", input_id="s", text="to the left") == []
    assert chat.queued[0].stage is Stage.STEERED
    assert shown(log("message", role="assistant", text="one")) == [(BlockKind.ANSWER, "one")]
    assert shown(log("input.consumed", input_id="s", step=2))[1] == (BlockKind.NOTE, "Steered the run · Read at step 2")


@pytest.mark.parametrize("response_first", [True, False])
def test_a_queued_input_waits_for_the_end_of_the_active_run(chat: Conversation, log: Log, response_first: bool) -> None:
    begin(chat, log)
    sent = chat.send("later", Delivery.QUEUE)
    if response_first:
        chat.accepted(sent, Outcome.NEW_RUN, NEXT_RUN)
    log("input.accepted", NEXT_RUN, input_id="q", text="later", delivery="queue")
    chat.accepted(sent, Outcome.NEW_RUN, NEXT_RUN)
    dropped = UUID(int=4)
    log("input.accepted", dropped, input_id="d", text="dropped", delivery="queue")
    assert (chat.active_run, [one.stage for one in chat.queued]) == (RUN, [Stage.PENDING, Stage.PENDING])
    log("input.discarded", dropped, input_id="d", reason="The run was cancelled.")
    assert shown(log("run.cancelled", dropped)) == [(BlockKind.WARNING, "Pending run cancelled.")]
    assert chat.active_run == RUN, "another run was cancelled"
    log("run.succeeded")
    assert not chat.is_idle
    assert chat.interrupted(0.0) == CancelRun(NEXT_RUN), "it is about to start"
    log("run.started", NEXT_RUN, attempt=1)
    assert chat.active_run == NEXT_RUN
    assert shown(log("input.consumed", NEXT_RUN, input_id="q", step=1))[1:] == [
        (BlockKind.NOTE, "Started a run · Read at step 1")
    ]
    log("run.succeeded", NEXT_RUN)
    assert chat.is_idle


def test_the_log_alone_shows_whether_an_input_started_or_steered(chat: Conversation, log: Log) -> None:
    log("input.accepted", input_id="a", text="theirs")
    log("input.accepted", input_id="b", text="theirs too")
    assert [one.stage for one in chat.queued] == [Stage.STARTED, Stage.STEERED]
    log("run.started", attempt=1)
    note = shown(log("input.consumed", input_id="a", step=1))[1]
    assert note == (BlockKind.NOTE, "Sent from another client · Started a run · Read at step 1")


def test_the_same_text_twice_is_two_inputs(chat: Conversation, log: Log) -> None:
    chat.send("go on")
    chat.send("go on")
    log("input.accepted", input_id="a", text="go on")
    assert [one.input_id for one in chat.queued] == ["a", None]
    log("input.accepted", input_id="b", text="go on")
    assert [one.input_id for one in chat.queued] == ["a", "b"]


def test_a_rejected_input_is_shown_with_the_reason(chat: Conversation) -> None:
    sent = chat.send("hello")
    assert shown(chat.rejected(sent, "The session is archived.")) == [
        (BlockKind.INPUT, "hello"),
        (BlockKind.WARNING, "Not accepted: The session is archived."),
    ]
    assert chat.is_idle


def test_the_stored_answer_replaces_the_live_text(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log.delta("Hel")
    log.delta("lo")
    assert str(chat.live_text) == "Hello"
    assert shown(log("message", role="assistant", text="Hello!")) == [(BlockKind.ANSWER, "Hello!")]
    assert str(chat.live_text) == ""


def test_live_text_of_an_earlier_attempt_is_dropped(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log.delta("old")
    log("run.requeued", reason="Its worker was lost.")
    log("run.started", attempt=2)
    log.delta("late", attempt=1)
    assert str(chat.live_text) == ""
    log.delta("new", attempt=2)
    assert str(chat.live_text) == "new"


def test_a_text_that_begins_replaces_the_live_text(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log.delta("The beginning")
    chat.stream_started()
    assert str(chat.live_text) == ""
    log.delta("The beginning")
    log.delta(" and the end")
    assert str(chat.live_text) == "The beginning and the end"
    log.delta("Again", offset=0)
    assert str(chat.live_text) == "Again"


def test_output_that_begins_replaces_the_live_output(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log("tool.call", call_id="c", name="bash", arguments={"command": "make"})
    for offset, text in ((0, "one"), (3, " two"), (0, "one two"), (7, " three")):
        chat.delta(Delta(SESSION, RUN, 1, text, 1, offset, "c"))
    assert str(chat.live_output["c"]) == "one two three"


def test_an_event_is_handled_once(chat: Conversation) -> None:
    event = make_event(7, "message", role="assistant", text="once")
    assert len(chat.event(event)) == 1
    assert chat.event(event) == []


def test_a_tool_call_is_shown_with_its_result(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    assert log("tool.call", call_id="c", name="read", arguments={"path": "x"}) == []
    assert chat.calls == ['read({"path":"x"})']
    images = [{"sha256": "00", "media_type": "image/png", "bytes": 2048}]
    assert shown(log("tool.result", call_id="c", name="read", text="y", images=images)) == [
        (BlockKind.TOOL, 'read({"path":"x"}) → y'),
        (BlockKind.NOTE, "Image: image/png (2.0 kB)"),
    ]
    assert chat.calls == []


def test_a_cancelled_run_shows_its_unfinished_work(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log("tool.call", call_id="c", name="now", arguments={})
    log.delta("Half an ans")
    chat.send("too late")
    log("input.accepted", input_id="l", text="too late")
    assert shown(log("input.discarded", input_id="l", reason="The run was cancelled."))[1] == (
        BlockKind.WARNING,
        "Discarded: The run was cancelled.",
    )
    assert shown(log("run.cancelled", discarded_input_ids=["l"])) == [
        (BlockKind.TOOL, "now() → no result"),
        (BlockKind.ANSWER, "Half an ans"),
        (BlockKind.NOTE, "Stopped; partial text not saved"),
        (BlockKind.WARNING, "Run cancelled."),
    ]
    assert chat.is_idle


def test_a_failed_run_moves_its_inputs_to_the_next(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    chat.accepted(chat.send("next"), Outcome.STEERED, RUN)
    log("input.accepted", input_id="n", text="next")
    blocks = shown(log("run.failed", reason="No.", next_run_id=str(NEXT_RUN)))
    assert blocks == [(BlockKind.WARNING, "Run failed: No."), (BlockKind.NOTE, "1 message moved to the next run.")]
    assert chat.active_run == NEXT_RUN
    log("run.started", NEXT_RUN, attempt=1)
    note = shown(log("input.consumed", NEXT_RUN, input_id="n", step=1))[1]
    assert note == (BlockKind.NOTE, "Moved to the next run · Read at step 1")


def test_unknown_event_types_are_skipped(chat: Conversation, log: Log) -> None:
    assert log("something.new", text="?") == []
    assert chat.position == 1


def test_ctrl_c_cancels_then_quits(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    assert chat.interrupted(100.0) == CancelRun(RUN)
    assert chat.interrupted(101.9) == Quit()


def test_ctrl_c_later_cancels_again(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    assert chat.interrupted(100.0) == CancelRun(RUN)
    assert chat.interrupted(102.1) == CancelRun(RUN)


def test_ctrl_c_without_an_active_run_asks_once_for_each_message(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log("run.succeeded")
    assert chat.interrupted(100.0) == Stay("Press Ctrl-C again to quit.")
    assert chat.interrupted(200.0) == Quit()
    chat.rejected(chat.send("another"), "too long")
    assert chat.interrupted(200.5) == Stay("Press Ctrl-C again to quit.")


def test_ctrl_c_with_something_unsent_warns_first(chat: Conversation) -> None:
    chat.send("on its way")
    assert chat.interrupted(100.0) == Stay("1 message not sent yet. Press Ctrl-C again to quit.")
    assert chat.interrupted(101.0) == Quit()


# --- how it is shown ---


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_control_characters_are_removed(text: str, expected: str) -> None:
    assert sanitized(text) == expected
    every = "".join(chr(code) for code in range(0xA0)) + text
    for block in (Block(kind, every) for kind in BlockKind):
        written = plain_text(block) + "".join(part for line in block_lines(block, 30) for _, part in line)
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


def test_shortened_text_ends_with_an_ellipsis() -> None:
    assert shortened("short", 5) == "short"
    assert shortened("longer", 5) == "long…"
    assert shortened("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (12, 4), (5, 1), (200, 60)])
def test_the_live_part_fits_the_screen(chat: Conversation, log: Log, columns: int, rows: int) -> None:
    begin(chat, log)
    for number in range(9):
        chat.send(f"input {number} " + "and more " * 20)
    log.delta("A long answer. " * 500)
    lines = live_lines(chat, columns, rows)
    assert len(lines) <= rows
    widest = max(sum(len(text) for _, text in line) for line in lines)
    assert widest <= max(columns, 10)


def test_the_live_part_shows_the_end_of_a_long_answer_and_queued_inputs(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    chat.accepted(chat.send("turn left"), Outcome.STEERED, RUN)
    log.delta("\n".join(f"line {number}" for number in range(100)))
    texts = ["".join(text for _, text in line) for line in live_lines(chat, 60, 8)]
    assert texts[-3:] == [
        "› turn left",
        "  Queued for the current run",
        "● Running · Ctrl-C to cancel",
    ]
    assert "line 99" in texts
    assert "line 50" not in texts


# --- long texts: work is counted, because time depends on the machine ---

MB = 1_000_000
LONG_TEXTS = {
    "one word": "x" * MB,
    "words": "some words " * (MB // 11),
    "short and long words": ("a " + "b" * 70 + " ") * (MB // 73),
    "wide": "漢" * MB,
    "spaces": " " * (MB - 1) + "x",
    "tabs": "\t" * (MB - 1) + "x",
    "lines": "a\n" * (MB // 2),
    "combining": "e" + "\u0301" * (MB - 1),
}


class Counted:
    """A function of prompt_toolkit, which counts the characters that it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.characters = 0

        def counted(text: str) -> int:
            self.characters += len(text)
            return get_cwidth(text)

        monkeypatch.setattr(chat_view, "get_cwidth", counted)


@pytest.mark.parametrize("columns", [10, 79])
@pytest.mark.parametrize("text", [text[: MB // 10] for text in LONG_TEXTS.values()], ids=LONG_TEXTS)
def test_wrapping_looks_at_each_character_a_few_times(text: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    lines = list(wrap(text, columns))
    assert counted.characters <= 4 * len(text.expandtabs(4))
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "kind"),
    # All texts of one kind, and one text of all kinds.
    [*((text, BlockKind.ANSWER) for text in LONG_TEXTS), *((next(iter(LONG_TEXTS)), kind) for kind in BlockKind)],
)
def test_of_a_long_text_the_beginning_is_shown(text: str, kind: BlockKind, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    lines = ["".join(part for _, part in line) for line in block_lines(Block(kind, LONG_TEXTS[text]), 79)]
    assert counted.characters <= 500_000
    assert len(lines) <= 2_100
    shown = "".join(lines).replace(" ", "")
    if kind in (BlockKind.OUTPUT, BlockKind.DIFF):
        assert "…" in shown
    elif kind is not BlockKind.TOOL:
        assert re.search(r"…\([0-9,]{6,}morecharacters\)", shown)


def test_the_mark_says_how_much_is_left_out() -> None:
    assert cut("x" * 10_000) == "x" * 10_000
    assert cut("x" * 10_001 + "\nnext") == "x" * 10_000 + " … (1 more characters)\nnext"
    assert cut("a\n" * 1_999 + "end") == "a\n" * 1_999 + "end"
    assert cut("a\n" * 2_000 + "end") == "a\n" * 2_000 + "… (3 more characters)"
    long = ("y" * 999 + "\n") * 1_000
    shown, _, mark = cut(long).rpartition("\n")
    assert long.startswith(shown)
    assert mark == "… (899,000 more characters)"


def test_the_live_part_costs_the_same_however_long_the_answer_is(
    chat: Conversation, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(chat, log)
    chat.accepted(chat.send("q" * MB), Outcome.STEERED, RUN)
    counted = Counted(monkeypatch)
    costs = []
    for _ in range(200):
        log.delta("words and more of them " * 200)
        before = counted.characters
        assert len(live_lines(chat, 79, 20)) == 20
        costs.append(counted.characters - before)
    assert chat.live_text.length == 200 * 23 * 200
    assert max(costs) <= 40_000


def test_live_text_is_not_copied_with_each_delta(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    for number in range(100_000):
        log.delta(f"{number} ")
    text = str(chat.live_text)
    assert text == "".join(f"{number} " for number in range(100_000))
    assert chat.live_text.after(chat.live_text.length - 6) == "99999 "
    assert text.endswith(chat.live_text.after(0))


def test_a_long_answer_that_was_stopped_is_shown(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log.delta("x" * MB)
    assert (BlockKind.ANSWER, "x" * MB) in shown(log("run.cancelled"))


def test_a_state_repeats_the_beginning_of_an_input_only(chat: Conversation, log: Log) -> None:
    (block,) = log("input.accepted", input_id="i", text="x" * MB)
    assert len(plain_text(block)) <= 202
    assert len(plain_text(Block(BlockKind.INPUT, "x" * MB))) > MB, "a pipe gets the whole text"


def test_many_queued_inputs_of_others_are_not_searched_for_ours(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    chat.send("mine")
    steps = 0

    class CountedList(list[QueuedInput]):
        def __iter__(self) -> Iterator[QueuedInput]:
            nonlocal steps
            for one in super().__iter__():
                steps += 1
                yield one

    chat.queued = CountedList(chat.queued)
    for number in range(1_000):
        log("input.accepted", input_id=f"{number}", text=f"theirs {number}")
    log("input.accepted", input_id="mine", text="mine")
    assert [one.input_id for one in chat.queued if not one.from_another_client] == ["mine"]
    assert steps <= 2_000


def test_a_repeated_model_request_begins_the_answer_anew(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    log.delta("Hel")
    retry = ModelRetry(SESSION, RUN, 2, 1.2, "The provider is \x1b[2Joverloaded.")
    assert chat.retried(msgspec.structs.replace(retry, run_id=SESSION)) == []
    assert str(chat.live_text) == "Hel"
    [block] = chat.retried(retry)
    assert block.kind is BlockKind.NOTE
    assert plain_text(block) == "  The provider is overloaded. Trying again in 2 s (attempt 2)."
    log.delta("Hello")
    assert str(chat.live_text) == "Hello"


# --- qd watch ---


def test_an_event_as_text_is_indented_and_sanitized() -> None:
    text = event_text(make_event(7, "message", role="assistant", text="one\n\x1b[2Jtwo"))
    first, second = text.split("\n")
    assert first.split()[0] == "7"
    assert first.endswith("  one")
    assert second.strip() == "two"
    assert first.index("one") == second.index("two")


ADA = {"type": "api_key", "id": str(RUN), "label": "deploys", "user_id": str(RUN), "display_name": "Ada"}
TOKEN = ADA | {"type": "session_token", "label": "phone", "display_name": None}
CALL: dict[str, Any] = {"call_id": "c1", "tool": "add_note", "arguments": {"text": "x"}, "reached": None, "reason": "…"}
BUDGET = {"scope": "day", "limit": "max_cost_usd", "maximum": 2, "used": 2.013}


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        ("run.cancelled", {"discarded_input_ids": []}, ""),
        ("run.cancelled", {"discarded_input_ids": ["a", "b"]}, "(2 inputs discarded)"),
        ("run.failed", {"reason": "No.", "next_run_id": str(RUN)}, f"No. (next run {RUN})"),
        ("run.started", {"attempt": 2, "model": "demo", "skills": []}, "attempt 2, demo"),
        ("run.started", {"attempt": 1, "skills": [{"name": "tea", "version": 3}]}, "attempt 1, tea@3"),
        ("input.accepted", {"text": "Hello", "actor": ADA}, "Hello (by Ada)"),
        ("input.accepted", {"text": "Hello"}, "Hello"),
        ("tool.started", {"name": "add_note", "attempt": 1, "key": "k", "call_id": "c1"}, "add_note, attempt 1"),
        ("note", {"text": "Buy milk", "key": "k"}, "Buy milk"),
        (
            "action.required",
            {"action_id": "A", "kind": "approval", **CALL},
            'Approval required: add_note({"text":"x"})\nqd actions resolve A --allow or --deny',
        ),
        (
            "action.required",
            {"action_id": "A", "kind": "budget", "tool": None, "arguments": None, "reached": BUDGET},
            "Limit reached: $2.01 of $2.00 used, the limit of the workspace for today\n"
            "qd actions resolve A --raise or --stop",
        ),
        ("action.resolved", {"tool": "t", "state": "expired"}, "t: Expired without an answer"),
        (
            "action.resolved",
            {"tool": None, "state": "resolved", "resolution": {"decision": "raise"}, "resolved_by": None},
            "Released: the limit was raised or its day is over",
        ),
        (
            "action.resolved",
            {"tool": "t", "state": "resolved", "resolution": {"result": [1]}, "resolved_by": TOKEN},
            "t: Result sent by phone: [1]",
        ),
        (
            "action.resolved",
            {"tool": "t", "state": "resolved", "resolution": {"decision": "deny", "message": "No"}, "resolved_by": ADA},
            "t: Denied by Ada: No",
        ),
        (
            "action.resolved",
            {"tool": None, "state": "resolved", "resolution": {"decision": "raise", "max_tokens": 90000}},
            "Limit raised: 90,000 tokens",
        ),
    ],
)
def test_events_as_text_for_people(type_: str, data: dict[str, Any], expected: str) -> None:
    text = event_text(make_event(7, type_, **data))
    shown = [line[35:] for line in text.split("\n")]
    assert "\n".join(shown) == expected


def test_keys_answer_the_oldest_open_action(chat: Conversation, log: Log) -> None:
    begin(chat, log)
    prompt = chat.actions
    assert prompt.choose("a") is None
    for action_id in ("A", "B"):
        log("action.required", action_id=action_id, kind="approval", **CALL)
    assert any("a allow" in text for line in live_lines(chat, 100, 20) for _, text in line)
    assert prompt.choose("x") is None
    choice = prompt.choose("a")
    assert choice is not None
    assert choice.answer == {"decision": "allow"}
    chat.actions.send("A")
    # The other one is next, and its answer is being typed when the first is answered.
    assert prompt.choose("d") is not None
    assert prompt.field is AnswerField.DENIAL
    assert shown(log("action.resolved", action_id="A", kind="approval", state="resolved", tool="add_note")) != []
    assert not prompt.is_stale
    assert prompt.typed("no") == {"decision": "deny", "message": "no"}
    log("action.resolved", action_id="B", kind="approval", state="expired", tool="add_note")
    assert prompt.is_stale
    assert prompt.field is None
    log("action.required", action_id="C", kind="budget", reached=BUDGET | {"limit": "max_tokens", "used": 7})
    assert prompt.is_stale
    assert prompt.choose("r") is not None
    for wrong in ("7", "x", ""):
        with pytest.raises(InvalidAnswer):
            prompt.typed(wrong)
    assert prompt.typed("8_000") == {"decision": "raise", "max_tokens": 8000}
    log("action.resolved", action_id="C", kind="budget", state="expired")
    log("action.required", action_id="D", kind="budget", reached=BUDGET | {"limit": "max_cost_usd", "used": 0.5})
    assert prompt.choose("r") is not None
    for wrong in ("inf", "-inf", "nan"):
        with pytest.raises(InvalidAnswer, match="finite"):
            prompt.typed(wrong)
    assert prompt.typed("$2.50") == {"decision": "raise", "max_cost_usd": 2.5}
    log("action.resolved", action_id="D", kind="budget", state="expired")
    log("action.required", action_id="E", kind="tool_result", **CALL)
    for key, more in (("r", {}), ("x", {"is_error": True})):
        assert prompt.choose(key) is not None
        assert prompt.typed('{"rain": 1}') == {"result": {"rain": 1}} | more
        assert prompt.typed("no { JSON") == {"result": "no { JSON"} | more
    log("run.cancelled", discarded_input_ids=[])
    assert len(chat.actions) == 0


def test_invisible_characters_in_arguments_are_shown_as_escapes(chat: Conversation, log: Log) -> None:
    """What is shown for approval is what runs: no two different arguments look the same."""
    hidden = "rm\u202e\u200b\u200d\x9b\ufe0f\U000e0041"
    escaped = r"rm\u202e\u200b\u200d\u009b\ufe0f\udb40\udc41"
    begin(chat, log)
    log("tool.call", call_id="c1", name="add_note", arguments={"text": hidden})
    log("action.required", action_id="A", kind="approval", **CALL | {"arguments": {"text": hidden}})
    prompt = chat.actions
    assert prompt.choose("e") is not None
    answer = {"decision": "allow", "arguments": {"text": hidden}}
    for text in (
        "".join(part for line in live_lines(chat, 100, 20) for _, part in line),
        event_text(make_event(7, "tool.call", name="add_note", arguments={"text": hidden})),
        event_text(make_event(7, "action.resolved", tool="add_note", state="resolved", resolution=answer)),
        prompt.initial_text(),
        shown(log("tool.result", call_id="c1", name="add_note", text="ok"))[0][1],
    ):
        assert escaped in text
    assert msgspec.json.decode(prompt.initial_text()) == {"text": hidden}


def test_an_event_of_an_unknown_type_shows_its_data() -> None:
    assert '{"colour":"red"}' in event_text(make_event(7, "something.new", colour="red"))


def test_an_event_as_json_is_one_printable_line() -> None:
    event = make_event(7, "message", role="assistant", text="a\n\x1b\x9b\u202eb")
    line = json_text(event)
    assert line.isprintable()
    assert msgspec.json.decode(line, type=Event) == event
