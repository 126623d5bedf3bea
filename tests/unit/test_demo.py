"""The built-in model: what it does follows from the turns alone, and it says what it is."""

import subprocess
import sys
import time
from collections.abc import Sequence
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from quarterdeck.models.context import CUT
from quarterdeck.models.demo import DemoModel
from quarterdeck.models.model import (
    MALFORMED_ARGUMENTS,
    AssistantTurn,
    CutOff,
    ModelFailure,
    Step,
    StepRequest,
    ToolResult,
    Turn,
    UserTurn,
)
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import Toolbox
from tests.unit.test_tools import SKILL, carry_out, toolbox

TIME_ONLY = toolbox(skills=()).specs


async def step(turns: Sequence[Turn], tools: Sequence[ToolSpec] = TIME_ONLY) -> Step:
    shown: list[str] = []
    made = await DemoModel(0, 60).step(StepRequest("Be brief.", turns, tools), shown.append)
    assert "".join(shown) == made.turn.text
    assert made.turn.text.startswith("Demo model: ")
    assert made.input_tokens > 0
    assert made.output_tokens > 0
    return made


def outline(turn: AssistantTurn) -> tuple[str, list[tuple[str, object]]]:
    return turn.text, [(call.name, call.arguments) for call in turn.tool_calls]


async def converse(turns: list[Turn], box: Toolbox | None = None) -> str:
    """Steps until the answer, carrying out the calls."""
    box = box or toolbox(skills=())
    while True:
        turn = (await step(turns, box.specs)).turn
        turns.append(turn)
        if not turn.tool_calls:
            return turn.text
        for call in turn.tool_calls:
            turns.append(await carry_out(box, call))


async def test_it_looks_up_the_time_then_answers() -> None:
    turns: list[Turn] = [UserTurn("What is this?")]
    answer = await converse(turns)
    assert [type(turn) for turn in turns] == [UserTurn, AssistantTurn, ToolResult, AssistantTurn]
    assert "> What is this?" in answer
    assert "current_time: " in answer
    assert "steered" not in answer


async def test_it_reads_every_skill_by_the_tools() -> None:
    box = toolbox()
    answer = await converse([UserTurn("Fill in the form")], box)
    assert "read_skill_file: --- name: pdf-tools" in answer
    assert [call.arguments for call in (await step([UserTurn("a")], box.specs)).turn.tool_calls] == [
        {},
        {"skill": SKILL.name, "path": "SKILL.md"},
    ]


async def test_answer_quotes_the_steering_inputs() -> None:
    turns: list[Turn] = [UserTurn("One"), UserTurn("Two")]
    turns.append((await step(turns)).turn)
    turns += [ToolResult("x", "current_time", "noon"), UserTurn("Three")]
    answer = (await step(turns)).turn
    assert answer.tool_calls == []
    assert "You asked:\n> One\n> Two\n" in answer.text
    assert "While I was working you steered me with:\n> Three\n" in answer.text


async def test_an_input_that_came_with_the_answer_is_answered_too() -> None:
    run_id = uuid4()
    turns: list[Turn] = [UserTurn("One", run_id)]
    await converse(turns)
    turns.append(UserTurn("But wait", run_id))
    answer = await converse(turns)
    assert "you steered me with:\n> But wait" in answer


async def test_each_run_quotes_its_own_inputs() -> None:
    turns: list[Turn] = [UserTurn("Old\ndemo: fail", uuid4()), UserTurn("New", uuid4())]
    answer = await converse(turns)
    assert "> New" in answer
    assert "Old" not in answer


async def test_next_step_follows_from_the_turns() -> None:
    """Nothing is kept between steps: another process makes the same of the same turns."""
    turns: list[Turn] = [UserTurn("demo: steps 3")]
    for number in range(3):
        first, again = await step(turns), await step(turns)
        assert outline(first.turn) == outline(again.turn)
        assert f"step {number + 1} of 4" in first.turn.text
        turns += [first.turn, ToolResult(first.turn.tool_calls[0].id, "current_time", "noon")]
    assert (await step(turns)).turn.tool_calls == []


async def test_call_ids_are_unique() -> None:
    calls = [(await step([UserTurn("a")])).turn.tool_calls[0].id for _ in range(2)]
    assert calls[0] != calls[1]


async def test_cut_command_cuts_the_answer() -> None:
    turns: list[Turn] = [UserTurn("Hello\ndemo: cut")]
    first = (await step(turns)).turn
    assert (bool(first.tool_calls), first.cut_off) == (True, None)
    turns += [first, *(ToolResult(call.id, call.name, "noon") for call in first.tool_calls)]
    assert (await step(turns)).turn.cut_off is CutOff.LENGTH


async def test_fail_command_fails_the_step() -> None:
    with pytest.raises(ModelFailure, match="Demo model: it was told to fail"):
        await step([UserTurn("please\ndemo: fail\nthanks")])
    assert (await step([UserTurn("what does demo: fail do?")])).turn.tool_calls


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("note: buy milk ", [("add_note", {"text": "buy milk"})]),
        ("note: one\r\nmore", [("add_note", {"text": "one"})]),
        ('call: add_note {"text": "a"}', [("add_note", {"text": "a"})]),
        (
            "Please\ncall: current_time\r\ncall: other  {}\ncall: third [1]",
            [("current_time", {}), ("other", {}), ("third", {MALFORMED_ARGUMENTS: "[1]"})],
        ),
        ("note: a\ncall: b", [("add_note", {"text": "a"}), ("b", {})]),
        ('call: b {"text": "\\u0000"}', [("b", {MALFORMED_ARGUMENTS: '{"text": "\\u0000"}'})]),
        ("a note: b", [("current_time", {})]),
        ("first\nnote: b", [("current_time", {})]),
        ("we call: b", [("current_time", {})]),
        ("note:  ", [("current_time", {})]),
    ],
)
async def test_inputs_order_calls(text: str, calls: list[tuple[str, object]]) -> None:
    turns: list[Turn] = [UserTurn(text)]
    turn = (await step(turns)).turn
    assert outline(turn)[1] == calls
    assert len({call.id for call in turn.tool_calls}) == len(calls)
    turns += [turn, *(ToolResult(call.id, call.name, "done") for call in turn.tool_calls)]
    assert (await step(turns)).turn.tool_calls == [], "an answered input orders nothing"
    turns.append(UserTurn("note: later"))
    assert outline((await step(turns)).turn)[1] == [("add_note", {"text": "later"})]


async def test_slow_command_delays_the_answer() -> None:
    start = time.monotonic()
    await step([UserTurn("demo: slow 0.2")])
    assert time.monotonic() - start >= 0.2


async def test_it_is_slow_for_a_limited_time_in_each_run() -> None:
    """Also if the turns of its earlier steps are cut off."""
    model, pauses = DemoModel(0, 100), []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    async def take_step(run_id: UUID) -> float:
        pauses.clear()
        with patch("quarterdeck.models.demo.asyncio.sleep", note):
            await model.step(StepRequest("", [UserTurn("demo: slow 40", run_id)], TIME_ONLY), lambda _: None)
        return round(sum(pauses), 3)

    one, other = uuid4(), uuid4()
    assert [await take_step(one) for _ in range(4)] == [40, 40, 20, 0]
    assert await take_step(other) == 40


async def test_it_shows_its_text_in_pieces() -> None:
    shown: list[str] = []
    await DemoModel(0.001, 60).step(StepRequest("", [UserTurn("a")], TIME_ONLY), shown.append)
    assert len(shown) > 1


async def test_its_answer_is_bounded() -> None:
    turns: list[Turn] = [*(UserTurn("x" * 10_000) for _ in range(1000)), AssistantTurn("", [])]
    assert len((await step(turns)).turn.text) < 50_000


def test_demo_and_api_need_no_provider_library() -> None:
    program = (
        "import sys, asyncio, quarterdeck.app, quarterdeck.models.retry, quarterdeck.worker.agent\n"
        "from quarterdeck.models.registry import ModelRegistry\n"
        "from quarterdeck.core.settings import ModelSettings\n"
        "asyncio.run(ModelRegistry(ModelSettings()).resolve(None))\n"
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic', 'httpx2') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


async def test_calls_of_a_cut_input_are_not_made() -> None:
    turn = (await step([UserTurn(f'call: add_note {{"text": "a{CUT}b"}}')])).turn
    assert (turn.text, turn.tool_calls) == (
        "Demo model: an input with calls did not fit into my context. I call nothing.",
        [],
    )
