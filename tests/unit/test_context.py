"""Which turns reach the model: the newest that fit, calls with their results, long texts cut in the middle."""

import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.models.context import (
    CUT,
    NO_RESULT,
    Split,
    cut_middle,
    cut_result,
    ends_exchange,
    estimate_tokens,
    fit_turns,
    newest_turns,
    split_turns,
    turn_tokens,
    with_results,
)
from quarterdeck.models.model import AssistantTurn, ToolCall, ToolResult, Turn, TurnOrigin, UserTurn


def user(text: str) -> UserTurn:
    return UserTurn(text)


def said(text: str, *call_ids: str) -> AssistantTurn:
    return AssistantTurn(text, [ToolCall(call_id, "read", {}) for call_id in call_ids])


def result(call_id: str, content: str = "content") -> ToolResult:
    return ToolResult(call_id, "read", content)


def tokens(turns: list[Turn]) -> int:
    return sum(map(turn_tokens, turns))


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ää", 1), ("日本語", 3)])
def test_a_token_is_four_bytes(text: str, count: int) -> None:
    assert estimate_tokens(text) == count


def test_turns_that_fit_are_unchanged() -> None:
    turns: list[Turn] = [user("a"), said("b", "1"), result("1"), said("c"), user("d")]
    assert fit_turns(turns, tokens(turns), "") == (turns, 0)
    assert fit_turns([], 1000, "x") == ([], 0)


def test_oldest_exchange_is_dropped_first() -> None:
    old: list[Turn] = [user("a"), said("b", "1"), result("1"), said("c")]
    new: list[Turn] = [user("d"), user("e"), said("f"), user("g")]
    assert fit_turns([*old, *new], tokens([*old, *new]) - 1, "") == (new, len(old))
    assert fit_turns([*old, *new], tokens(new), "") == (new, len(old))
    assert fit_turns([*old, *new], tokens(new) - 1, "") == ([user("g")], 7)


def test_the_older_part_is_split_off_for_a_summary() -> None:
    """Never what the model has not answered yet, nor the newest input."""
    turns: list[Turn] = [user("a"), said("b"), user("c"), said("d", "1"), result("1"), user("e"), said("f"), user("g")]
    assert split_turns(turns, 0) == Split(turns[:7], turns[7:], 0)
    assert split_turns(turns, tokens(turns[5:])) == Split(turns[:5], turns[5:], 1)
    assert split_turns(turns, tokens(turns)) == Split(turns[:2], turns[2:], 2)
    assert split_turns(turns[:5], 0) == Split(turns[:2], turns[2:5], 1), "the result was not seen yet"
    steps: list[Turn] = [user("a"), said("b", "1"), result("1"), said("c", "2"), result("2")]
    assert split_turns(steps, 0) == Split(steps[:3], [steps[0], *steps[3:]], 1), "the task stays"
    assert split_turns(steps[:3], 0) is None
    assert split_turns([user("a"), user("b")], 0) is None
    summary = UserTurn("s", origin=TurnOrigin.SUMMARY)
    later: list[Turn] = [summary, *steps]
    assert split_turns(later, 0) == Split(later[:4], [steps[0], *steps[3:]], 1)
    assert fit_turns([summary, *turns], tokens([summary, *turns[7:]]), "") == ([summary, user("g")], 7)
    assert newest_turns([summary, *turns], 1) == [summary, user("g")]


def test_instructions_count_against_the_budget() -> None:
    turns: list[Turn] = [user("a"), said("b"), user("c")]
    assert fit_turns(turns, tokens(turns) + 1, "abcd") == (turns, 0)
    assert fit_turns(turns, tokens(turns) + 1, "abcde") == ([user("c")], 2)


def test_oldest_steps_of_a_long_run_are_dropped() -> None:
    asked = user("do it")
    steps = [(said("", str(n)), result(str(n), "x" * 400)) for n in range(10)]
    turns: list[Turn] = [asked, *(turn for step in steps for turn in step)]
    kept, dropped = fit_turns(turns, 300, "")
    assert kept == [asked, *steps[8], *steps[9]]
    assert dropped == 16


def test_a_steered_input_begins_no_exchange() -> None:
    """The task and everything since the last answer stay. The result that the model has not seen is cut."""
    turns: list[Turn] = [user("a"), said("", "1"), result("1", "x" * 4000), user("steer")]
    kept, dropped = fit_turns([user("old"), said("answer"), *turns], 200, "")
    assert dropped == 2
    assert [kept[0], kept[1], kept[3]] == [turns[0], turns[1], turns[3]]
    assert isinstance(kept[2], ToolResult)
    assert CUT in kept[2].content
    assert [turn.is_cut for turn in kept] == [False, False, True, False]


def test_results_are_cut_before_steps_are_dropped() -> None:
    """The oldest first, and those that the model has not seen last. Inputs outlast the steps between them."""
    steps = [(said("", str(n)), result(str(n), "x" * 4000)) for n in range(4)]
    turns: list[Turn] = [user("task"), *steps[0], user("steer"), *(turn for step in steps[1:] for turn in step)]
    for context_tokens, cut, dropped in ((4100, 1, 0), (3000, 2, 0), (2000, 3, 0), (1200, 4, 0), (300, 1, 6)):
        kept, count = fit_turns(turns, context_tokens, "")
        assert count == dropped
        assert tokens(kept) <= context_tokens
        assert [turn.is_cut for turn in kept if isinstance(turn, ToolResult)] == [True] * cut + [False] * (
            4 - dropped // 2 - cut
        )
        assert [turn for turn in kept if isinstance(turn, UserTurn)] == [user("task"), user("steer")]


def test_the_task_of_the_newest_run_outlasts_other_inputs() -> None:
    runs = [UUID(int=number) for number in range(2)]
    turns: list[Turn] = [UserTurn(f"{number} " + "x" * 400, runs[number // 3]) for number in range(6)]
    kept, dropped = fit_turns(turns, 250, "")
    assert (kept, dropped) == ([turns[3], turns[5]], 4)


def test_an_exchange_ends_with_an_answer_that_was_not_corrected() -> None:
    correction = UserTurn("wrong", origin=TurnOrigin.CORRECTION)
    turns: list[Turn] = [user("a"), said("b"), correction, said("c"), user("d"), said("", "1"), result("1"), user("e")]
    assert [ends_exchange(turns, at) for at in range(4)] == [False, False, False, True]
    assert fit_turns(turns, tokens(turns) - 1, "") == (turns[4:], 4)


def test_an_input_too_long_is_cut_in_the_middle() -> None:
    kept, dropped = fit_turns([user("a"), said("b"), user("start" + "x" * 100_000 + "end")], 1000, "")
    assert dropped == 2
    [turn] = kept
    assert isinstance(turn, UserTurn)
    assert turn.text.startswith("startx")
    assert turn.text.endswith("xend")
    assert CUT in turn.text
    assert tokens(kept) <= 1000


def test_the_longest_text_is_cut_first() -> None:
    turns: list[Turn] = [user("ask"), said("hm", "1", "2"), result("1", "x" * 50_000), result("2", "short")]
    kept, dropped = fit_turns(turns, 2000, "")
    assert dropped == 0
    assert kept[0] == turns[0]
    assert kept[3] == turns[3]
    assert tokens(kept) <= 2000


def test_a_turn_that_is_cut_loses_its_record() -> None:
    record = {"model": "m", "response": "x" * 50_000}
    kept, _ = fit_turns([user("a"), AssistantTurn("x" * 50_000, [], record)], 1000, "")
    assert isinstance(kept[1], AssistantTurn)
    assert kept[1].record is None


def test_a_long_session_takes_no_longer_than_a_window() -> None:
    turns: list[Turn] = [turn for n in range(20_000) for turn in (user(f"ask {n} {'x' * 100}"), said("y" * 100))]
    start = time.process_time()
    kept, dropped = fit_turns(turns, 10_000, "")
    assert time.process_time() - start < 0.1
    assert len(kept) + dropped == len(turns)
    assert kept == turns[-len(kept) :]


def test_cutting_terminates() -> None:
    kept, _ = fit_turns([user("short"), said("", *map(str, range(100)))], 10, "")
    assert kept[0] == user("short")


@pytest.mark.parametrize("text", ["a" * 5000, "ä" * 5000, "日" * 5000, "🙂" * 5000])
def test_cut_never_splits_a_character(text: str) -> None:
    cut = cut_middle(text, 1001)
    assert len(cut.encode()) <= 1001
    assert set(cut) <= set(text) | set(CUT)


def test_an_open_call_is_closed() -> None:
    assert with_results([user("a"), said("", "1", "2"), result("2"), user("b")]) == [
        user("a"),
        said("", "1", "2"),
        ToolResult("1", "read", NO_RESULT),
        result("2"),
        user("b"),
    ]


def test_an_input_between_call_and_result_comes_after_both() -> None:
    assert with_results([said("", "1"), user("b"), result("1")]) == [said("", "1"), result("1"), user("b")]


def test_a_result_without_its_call_is_left_out() -> None:
    assert with_results([result("0"), user("a"), said("b"), result("1"), user("c")]) == [
        user("a"),
        said("b"),
        user("c"),
    ]


def test_calls_of_the_same_name_in_two_answers_keep_their_results() -> None:
    turns: list[Turn] = [said("", "call_0"), result("call_0", "1"), said("", "call_0"), result("call_0", "2")]
    assert with_results(turns) == turns


_turns = st.lists(
    st.one_of(
        st.builds(UserTurn, st.text(max_size=300)),
        st.builds(said, st.text(max_size=300), st.sampled_from("123"), st.sampled_from("45")),
        st.builds(result, st.sampled_from("12345"), st.text(max_size=2000)),
    ),
    max_size=30,
)


@given(_turns, st.integers(1, 4000))
def test_calls_have_results_and_the_newest_input_stays(turns: list[Turn], budget: int) -> None:
    kept, dropped = fit_turns(turns, budget, "be brief")
    assert dropped >= 0
    assert dropped > 0 or len(kept) == len(with_results(turns))
    assert with_results(kept) == kept
    inputs = [turn for turn in turns if isinstance(turn, UserTurn)]
    left = [turn for turn in kept if isinstance(turn, UserTurn)]
    if inputs:
        assert left[-1].text[:50] == inputs[-1].text[:50]
    if tokens(kept) > budget:
        # The last step, the newest input and the first one of its run are left.
        assert len(left) <= 2
        assert sum(isinstance(turn, AssistantTurn) for turn in kept) <= 1
    if inputs:
        start = max((at for at in range(1, len(turns)) if ends_exchange(turns, at - 1)), default=0)
        task = next((turn for turn in turns[start:] if isinstance(turn, UserTurn)), None)
        assert task is None or any(turn.text[:50] == task.text[:50] for turn in left), "the task stays"


def test_the_newest_turns_are_whole_steps_and_the_newest_input() -> None:
    turns: list[Turn] = [user("old"), user("task"), said("a", "1", "2"), result("1"), result("2"), said("b", "3")]
    turns.append(result("3"))
    assert newest_turns(turns, tokens(turns)) == turns
    assert newest_turns([*turns, said("answer"), user("new")], 1) == [user("new")]
    assert newest_turns([], 1) == []
    assert newest_turns([*turns, user("new")], 1) == [user("old"), *turns[-2:], user("new")], "the task stays"
    steps = [turn for n in range(9) for turn in (said("", str(n)), result(str(n), f"{n}" * 4000))]
    kept = newest_turns([user("task"), *steps], 1200)
    assert kept[0] == user("task")
    assert kept[-4:] == steps[-4:], "whole"
    assert [turn.is_cut for turn in kept[1:-4] if isinstance(turn, ToolResult)] == [True] * ((len(kept) - 5) // 2)
    assert 1200 < tokens([cut_result(turn) if isinstance(turn, ToolResult) else turn for turn in kept[1:-2]]) < 1600


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    turns: list[Turn] = []
    for number in range(draw(st.integers(0, 12))):
        text = f"{number} " + "x" * draw(st.integers(0, 3000))
        if draw(st.booleans()):
            turns.append(user(text))
        else:
            calls = [f"{number}.{call}" for call in range(draw(st.integers(0, 3)))]
            turns += [said(text, *calls), *(result(call, "y" * draw(st.integers(0, 2000))) for call in calls)]
    return turns


@given(conversations(), st.integers(1000, 3000))
def test_the_newest_turns_are_all_that_can_fit(turns: list[Turn], context_tokens: int) -> None:
    newest = newest_turns(turns, context_tokens * 5 // 4)
    kept, dropped = fit_turns(turns, context_tokens, "Be brief.")
    assert fit_turns(newest, context_tokens, "Be brief.") == (kept, dropped - (len(turns) - len(newest)))
