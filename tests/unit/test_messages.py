"""Turns as messages of providers, and back: what models write may be nested without end."""

from functools import partial

import pytest
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.attachments import takes, wanted, with_contents, with_selection
from quarterdeck.models.context import turn_tokens
from quarterdeck.models.messages import to_messages, to_turn
from quarterdeck.models.model import (
    MALFORMED_ARGUMENTS,
    AssistantTurn,
    ResultImage,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
)


def nested(levels: int) -> str:
    return '{"a": ' + "[" * levels + "]" * levels + "}"


def arguments_of(written: str) -> dict[str, object]:
    [call] = to_turn(ModelResponse([ToolCallPart("tool", written, "1")]), "model").tool_calls
    return call.arguments


def test_arguments_are_kept_as_they_are() -> None:
    assert arguments_of('{"a": [[1]]}') == {"a": [[1]]}
    assert list(arguments_of(nested(90))) == ["a"]


@pytest.mark.parametrize("levels", [110, 500, 950, 980, 100_000])
def test_arguments_that_others_could_not_read_back_are_text(levels: int) -> None:
    """A worker may read 980 levels where an API process, called from deeper down, can only read 950."""
    assert list(arguments_of(nested(levels))) == [MALFORMED_ARGUMENTS]


def test_the_order_of_arguments_does_not_depend_on_who_has_read_them() -> None:
    """The worker that got the answer has the model's order, all others that of PostgreSQL."""
    written, stored = {"zone": {"b": 1, "a": 2}, "a": 1}, {"a": 1, "zone": {"a": 2, "b": 1}}
    sent = [
        to_messages([UserTurn("Go."), AssistantTurn("", [ToolCall("1", "tool", arguments)])], "", "model")[1]
        for arguments in (written, stored)
    ]
    assert repr(sent[0].parts) == repr(sent[1].parts)


def result_sent(model_name: str, loaded: dict[str, bytes], settings: ModelSettings | None = None) -> object:
    """What a request contains of a result with an image of four bytes."""
    image = ResultImage(sha256="ab", media_type="image/png", bytes=4)
    turns: list[Turn] = [
        UserTurn("Draw."),
        AssistantTurn("", [ToolCall("1", "draw", {})]),
        ToolResult("1", "draw", "A chart.", (image,)),
    ]
    selected = with_selection(turns, partial(takes, model_name), settings or ModelSettings(), 100_000)
    assert (turn_tokens(selected[2]) > 1600) == (wanted(selected) == {"ab": 4})
    [part] = to_messages(with_contents(selected, loaded), "", model_name)[-1].parts
    assert isinstance(part, ToolReturnPart)
    return part.content


def test_images_of_results() -> None:
    assert result_sent("openai:m", {"ab": b"png!"}) == ["A chart.", BinaryContent(b"png!", media_type="image/png")]
    left_out = "A chart.\n[Image (image/png, 4 bytes). "
    assert result_sent("deepseek:m", {"ab": b"png!"}) == f"{left_out}You cannot be shown this kind of file.]"
    assert result_sent("openai:m", {}) == f"{left_out}Its content could not be read.]"
    assert str(result_sent("openai:m", {"ab": b"png!"}, ModelSettings(attachment_bytes=3))).startswith(left_out)


def kinds(turns: list[Turn]) -> list[str]:
    """Of the messages: the kinds of their parts."""
    return [
        ",".join(part.part_kind for part in message.parts) for message in to_messages(turns, "Be brief.", "openai:m")
    ]


def answer(text: str, *call_ids: str, recorded: tuple[str, ...] | None = None) -> AssistantTurn:
    """`recorded`: the ids of the calls in the provider's record."""
    calls = [ToolCallPart("t", "{}", call_id) for call_id in recorded or ()]
    record = None if recorded is None else to_turn(ModelResponse([TextPart(text), *calls]), "openai:m").record
    return AssistantTurn(text, [ToolCall(call_id, "t", {}) for call_id in call_ids], record)


def test_requests_and_answers_alternate() -> None:
    """Whatever was left out between them."""
    user = UserTurn("a")
    assert kinds([user, answer(""), user, answer(" "), user]) == ["user-prompt"]
    assert kinds([user, answer("", recorded=()), user]) == ["user-prompt"]
    assert kinds([answer("x"), answer("y"), user]) == ["user-prompt", "text"] * 2 + ["user-prompt"]
    assert kinds([user, answer("x", "1"), answer("y")])[:3] == ["user-prompt", "text,tool-call", "tool-return"]
    assert kinds([]) == []


@pytest.mark.parametrize("left", [(), ("1",), ("1", "2")])
def test_calls_of_an_answer_that_were_cut_off_are_not_sent(left: tuple[str, ...]) -> None:
    """A fork may end between them. The record of the provider still has them."""
    sent = kinds([UserTurn("a"), answer("x", *left, recorded=("1", "2")), UserTurn("b")])
    results = "tool-return," * len(left)
    assert sent == ["user-prompt", "text" + ",tool-call" * len(left), f"{results}user-prompt"]
