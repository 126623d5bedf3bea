"""What is sent to providers: options, conversations, attachments, records of earlier answers."""

import base64
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.attachments import takes, wanted, with_contents, with_selection
from quarterdeck.models.model import (
    AssistantTurn,
    Attachment,
    CutOff,
    ModelFailure,
    ModelOptions,
    StepRequest,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
)
from quarterdeck.models.registry import ModelRegistry
from tests.contract.provider_server import (
    ANTHROPIC,
    GROQ,
    OPENAI,
    RESPONSES,
    Dialect,
    provider,
    refuses,
    streams,
    thinking,
)
from tests.contract.provider_talk import HELLO, KEY, all_three, both, talking

HISTORY: list[Turn] = [
    UserTurn("First"),
    UserTurn("Second"),
    AssistantTurn("Reading.", [ToolCall("call_1", "read", {"path": "a"}), ToolCall("call_2", "read", {"path": "b"})]),
    ToolResult("call_1", "read", "content of a"),
    ToolResult("call_2", "read", "there is no b", is_error=True),
    UserTurn("Third"),
    AssistantTurn("Done.", []),
    UserTurn(""),
]


async def test_anthropic_gets_the_options() -> None:
    for options, sent in ((ModelOptions(0.5, 77), (0.5, 77)), (ModelOptions(max_output_tokens=78), (None, 78))):
        async with talking(ANTHROPIC, streams(ANTHROPIC.text("ok")), options=options) as talk:
            await talk.step()
            body = talk.served.requests[0].body
            assert (body.get("temperature"), body["max_tokens"]) == sent


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
@pytest.mark.parametrize(
    ("dialect", "model", "effort", "ignored"),
    [
        (RESPONSES, "openai:o3", None, ("temperature",)),
        (RESPONSES, "openai:gpt-5", None, ("temperature",)),
        (RESPONSES, "openai:gpt-5", "low", ("temperature",)),
        # Its reasoning is off unless it is asked for.
        (RESPONSES, "openai:gpt-5.1", None, ()),
        (RESPONSES, "openai:gpt-5.1", "low", ("temperature",)),
        (RESPONSES, "openai:gpt-4o", None, ()),
        (OPENAI, "openai:gpt-4o", None, ()),
        (ANTHROPIC, "anthropic:claude-opus-4-7", None, ("temperature",)),
        (ANTHROPIC, "anthropic:claude-sonnet-4-5", None, ()),
    ],
)
async def test_settings_that_a_model_does_not_take_are_named(
    dialect: Dialect, model: str, effort: Any, ignored: tuple[str, ...]
) -> None:
    """What is sent is what the step says. pydantic-ai warns of what it leaves out itself, which would fail here."""
    options = ModelOptions(temperature=0.5, reasoning_effort=effort)
    named = msgspec.structs.replace(dialect, model=model)
    async with talking(named, streams(dialect.text("ok")), options=options) as talk:
        assert (await talk.step()).ignored_settings == ignored
        body = talk.served.requests[0].body
        assert (body.get("temperature") is None) == ("temperature" in ignored)
        sends_effort = bool(body.get("reasoning") or body.get("reasoning_effort") or body.get("thinking"))
        assert sends_effort == (effort is not None and "reasoning_effort" not in ignored)


async def test_groq_models_without_reasoning(monkeypatch: pytest.MonkeyPatch) -> None:
    async with provider(streams(GROQ.text("ok"))) as served:
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        monkeypatch.setenv("GROQ_BASE_URL", served.url)
        models = ModelRegistry(ModelSettings())
        model = await models.resolve("groq:llama-3.1-8b-instant", ModelOptions(0.5, reasoning_effort="low"))
        step = await model.step(StepRequest("", HELLO), lambda _: None)
        await models.close()
    assert step.ignored_settings == ("reasoning_effort",)
    body = served.requests[0].body
    assert (body["temperature"], "reasoning_effort" in body) == (0.5, False)


async def test_openai_gets_the_conversation() -> None:
    async with talking(OPENAI, streams(OPENAI.text("ok"))) as talk:
        await talk.step(HISTORY)
        body = talk.served.requests[0].body
        assert [message["role"] for message in body["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "assistant",
            "user",
        ]
        system, asked, answered, one, two, third, _, empty = body["messages"]
        assert system["content"] == "Be brief."
        assert asked["content"] == "First\n\nSecond"
        assert [call["id"] for call in answered["tool_calls"]] == ["call_1", "call_2"]
        assert answered["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a"}'}
        assert answered["content"] == "Reading."
        assert (one["tool_call_id"], one["content"]) == ("call_1", "content of a")
        assert (two["tool_call_id"], two["content"]) == ("call_2", '{"error":"there is no b"}')
        assert third["content"] == "Third"
        assert empty["content"] == "(an empty message)"
        [tool] = body["tools"]
        assert tool["function"]["name"] == "read"
        assert tool["function"]["parameters"]["required"] == ["path"]
        assert body["stream_options"] == {"include_usage": True}


async def test_anthropic_gets_the_conversation() -> None:
    async with talking(ANTHROPIC, streams(ANTHROPIC.text("ok"))) as talk:
        await talk.step(HISTORY)
        body = talk.served.requests[0].body
        system = body["system"]
        assert (system if isinstance(system, str) else system[0]["text"]) == "Be brief."
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
        asked, answered, results, _, empty = (message["content"] for message in body["messages"])
        assert asked == [{"type": "text", "text": "First\n\nSecond"}]
        assert answered == [
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "call_2", "name": "read", "input": {"path": "b"}},
        ]
        assert [block["type"] for block in results] == ["tool_result", "tool_result", "text"]
        assert [block.get("tool_use_id") for block in results] == ["call_1", "call_2", None]
        assert [block.get("is_error") for block in results] == [False, True, None]
        assert results[1]["content"] == [{"type": "text", "text": "there is no b"}]
        assert empty == [{"type": "text", "text": "(an empty message)"}]
        assert body["tools"][0]["input_schema"]["required"] == ["path"]


PICTURE, DOCUMENT = b"\x89PNG\r\n\x1a\n picture", b"%PDF-1.7 document"


def with_attachments() -> UserTurn:
    """As the worker prepares it for a request."""
    files = [
        ("notes.txt", "text/plain", b"Call Ann.", "attachments/notes.txt"),
        ("photo.png", "image/png", PICTURE, None),
        ("Report Ä", "application/pdf", DOCUMENT, None),
        ("files.zip", "application/zip", b"PK", "attachments/files.zip"),
        ("lost.txt", "text/plain", b"lost", None),
    ]
    attachments = tuple(
        Attachment(file_id=uuid4(), name=name, media_type=kind, bytes=len(data), sha256=name, path=path)
        for name, kind, data, path in files
    )
    turns: list[Turn] = [UserTurn("Look.", attachments=attachments)]
    turns = with_selection(turns, partial(takes, "openai:m"), ModelSettings(), 100_000)
    assert wanted(turns) == {"notes.txt": 9, "photo.png": len(PICTURE), "Report Ä": len(DOCUMENT), "lost.txt": 4}
    [turn] = with_contents(turns, {name: data for name, _, data, _ in files if name != "lost.txt"})
    assert isinstance(turn, UserTurn)
    return turn


TOLD = [
    "Look.\n\n[Attachment notes.txt (text/plain, 9 bytes, path in the sandbox: attachments/notes.txt).]\nCall Ann.\n"
    f"[End of attachment notes.txt]\n\n[Attachment photo.png (image/png, {len(PICTURE)} bytes).]",
    f"[Attachment Report Ä (application/pdf, {len(DOCUMENT)} bytes).]",
    "[Attachment files.zip (application/zip, 2 bytes, path in the sandbox: attachments/files.zip). You cannot be shown "
    "this kind of file.]\n\n[Attachment lost.txt (text/plain, 4 bytes). Its content could not be read.]\n\nAnd this.",
]


async def test_openai_gets_attachments(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [with_attachments(), UserTurn("And this.")]
    picture, document = (base64.b64encode(data).decode() for data in (PICTURE, DOCUMENT))
    async with talking(OPENAI, streams(OPENAI.text("ok"))) as talk:
        await talk.step(turns)
        content = talk.served.requests[0].body["messages"][-1]["content"]
    assert [part["text"] for part in content if part["type"] == "text"] == TOLD
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{picture}"
    assert content[3]["file"] == {"file_data": f"data:application/pdf;base64,{document}", "filename": "filename.pdf"}

    async with provider(refuses(400, OPENAI.error("invalid", "seen"))) as served:
        monkeypatch.setattr("quarterdeck.models.providers.OPENAI_URL", f"{served.url}/v1")
        models = ModelRegistry(ModelSettings(openai_api_key=KEY))
        with pytest.raises(ModelFailure, match="seen"):
            await (await models.resolve("openai:gpt-test")).step(StepRequest("", turns), lambda _: None)
        await models.close()
        content = served.requests[0].body["input"][-1]["content"]
    assert [part["text"] for part in content if part["type"] == "input_text"] == TOLD
    assert content[1]["image_url"] == f"data:image/png;base64,{picture}"
    assert content[3]["file_data"] == f"data:application/pdf;base64,{document}"


async def test_anthropic_gets_attachments() -> None:
    async with talking(ANTHROPIC, streams(ANTHROPIC.text("ok"))) as talk:
        await talk.step([with_attachments(), UserTurn("And this.")])
        content = talk.served.requests[0].body["messages"][-1]["content"]
    assert [part["text"] for part in content if part["type"] == "text"] == TOLD
    kinds = [("image", "image/png", PICTURE), ("document", "application/pdf", DOCUMENT)]
    for part, (kind, media_type, data) in zip(content[1::2], kinds, strict=True):
        assert part["type"] == kind
        assert part["source"]["type"] == "base64"
        assert part["source"]["media_type"] == media_type
        assert part["source"]["data"] == base64.b64encode(data).decode()


@both
async def test_a_call_that_was_never_answered_is_answered_for_the_provider(dialect: Dialect) -> None:
    open_call: list[Turn] = [
        UserTurn("a"),
        AssistantTurn("", [ToolCall("call_1", "read", {"path": "a"})]),
        UserTurn("b"),
    ]
    async with talking(dialect, streams(dialect.text("ok"))) as talk:
        await talk.step(open_call)
        assert "No result" in str(talk.served.requests[0].body["messages"])


@all_three
async def test_answers_that_were_cut_off(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.cut_off("Half an", " answer")), streams(dialect.text("ok"))) as talk:
        turn = (await talk.step()).turn
        assert (turn.text, turn.cut_off) == ("Half an answer", CutOff.LENGTH)
        assert (await talk.step([*HELLO, turn, UserTurn("Go on")])).turn.cut_off is None
        body = talk.served.requests[1].body
        last = (body.get("messages") or body["input"])[-1]
    assert last["role"] == "user"
    assert "(your answer above is not complete: it was cut off)" in str(last["content"])
    assert "Go on" in str(last["content"])


@all_three
async def test_nothing_but_reasoning_before_the_cut(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.cut_off()), streams(dialect.text("ok"))) as talk:
        turn = (await talk.step()).turn
        assert (turn.text, turn.cut_off) == ("", CutOff.LENGTH)
        assert (await talk.step([*HELLO, turn, UserTurn("Go on")])).turn.text == "ok"


async def test_a_content_filter_cuts_answers_off() -> None:
    filtered = streams(OPENAI.text("Half", reason="content_filter"))
    async with talking(OPENAI, filtered) as talk:
        assert (await talk.step()).turn.cut_off is CutOff.CONTENT_FILTER


def called(call_id: str = "call_1", name: str = "read", result: str = "ok", text: str = "") -> list[Turn]:
    return [AssistantTurn(text, [ToolCall(call_id, name, {"path": "a"})]), ToolResult(call_id, name, result)]


HARD_HISTORIES: dict[str, list[Turn]] = {
    "result without text": called(result=" \n"),
    "failed call without text": [*called()[:1], ToolResult("call_1", "read", "", is_error=True)],
    "name that no tool can have": called(name="functions.read"),
    "no name": called(name=""),
    "id of another provider": called("functions.read:0"),
    "id that comes again": [*called(), *called(), UserTurn("b"), *called()],
    "id that comes again in one answer": [
        AssistantTurn("", [ToolCall("call_1", "read", {}), ToolCall("call_1", "add", {})]),
        ToolResult("call_1", "read", "first"),
        ToolResult("call_1", "add", "second"),
    ],
    "empty answer": [AssistantTurn(" ", []), UserTurn("b")],
    "answers whose question was removed": [AssistantTurn("a", []), AssistantTurn("b", []), UserTurn("c")],
    "lost question": [AssistantTurn("a", []), UserTurn("b")],
}


@all_three
@pytest.mark.parametrize("name", HARD_HISTORIES)
async def test_every_history_is_accepted(dialect: Dialect, name: str) -> None:
    """What would be refused is told from what is answered by tests/strict_provider.py."""
    question = [] if name == "lost question" else HELLO
    async with talking(dialect, streams(dialect.text("ok"))) as talk:
        assert (await talk.step([*question, *HARD_HISTORIES[name]])).turn.text == "ok"


@all_three
async def test_own_answers_are_accepted(dialect: Dialect) -> None:
    """Records are sent back unchanged: also those of odd answers."""
    wrong = [("call_1", "functions.read", '{"path": "a"}'), ("call_2", "read", "{")]
    replies = [dialect.calls("", *wrong), dialect.calls("", *wrong), dialect.text(), dialect.text("ok")]
    async with talking(dialect, *map(streams, replies)) as talk:
        turns = list[Turn](HELLO)
        for _ in replies:
            turn = (await talk.step(turns)).turn
            turns += [turn, *(ToolResult(call.id, call.name, "No.") for call in turn.tool_calls)]
            turns += [] if turn.tool_calls else [UserTurn("Go on")]
        assert turn.text == "ok"


async def test_results_keep_their_calls() -> None:
    """Also if ids are replaced."""
    history = [*HELLO, *called(result="one"), *called(result="two"), *called("a:b", "a.b", "three")]
    async with talking(ANTHROPIC, streams(ANTHROPIC.text("ok"))) as talk:
        await talk.step(history)
        contents = [message["content"][0] for message in talk.served.requests[0].body["messages"][1:]]
    ids = [content.get("id") or content["tool_use_id"] for content in contents]
    assert ids == ["call_1", "call_1", "call_2", "call_2", "call_3", "call_3"]
    assert [content["name"] for content in contents[::2]] == ["read", "read", "a_b"]
    assert [content["content"][0]["text"] for content in contents[1::2]] == ["one", "two", "three"]


@both
async def test_without_instructions_there_is_no_system_prompt(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.text("ok"))) as talk:
        await talk.step(instructions="")
        body = talk.served.requests[0].body
        assert "system" not in body
        assert body["messages"][0]["role"] == "user"


async def test_provider_records_are_sent_to_the_same_model_only() -> None:
    replies = [streams(thinking("Hm.", "c2lnbmVk", "Yes.")), *[streams(ANTHROPIC.text("ok"))] * 2]
    async with talking(ANTHROPIC, *replies) as talk:
        turn = (await talk.step()).turn
        assert (turn.text, talk.shown) == ("Yes.", ["Yes."])
        await talk.step([*HELLO, turn, UserTurn("Sure?")])
        sent = talk.served.requests[1].body["messages"][1]["content"]
        assert sent[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
        elsewhere = AssistantTurn(turn.text, [], turn.record | {"model": "anthropic:claude-other"})
        await talk.step([*HELLO, elsewhere, UserTurn("Sure?")])
        assert talk.served.requests[2].body["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]


@both
async def test_unreadable_record_is_ignored(dialect: Dialect) -> None:
    strange = AssistantTurn("Said.", [], {"model": dialect.model, "response": {"kind": "future"}})
    async with talking(dialect, streams(dialect.text("ok"))) as talk:
        await talk.step([*HELLO, strange, UserTurn("Go on")])
        assert "Said." in str(talk.served.requests[0].body["messages"][-2])


@both
async def test_a_record_is_small_and_plain(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.text("word"))) as talk:
        record = (await talk.step()).turn.record
        assert record["model"] == dialect.model
        assert len(str(record)) < 600
        assert KEY not in str(record)
