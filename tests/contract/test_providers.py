"""Steps of a run over HTTP, against servers that speak the protocols of OpenAI and Anthropic and fail as they do."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from pydantic_ai.usage import RequestUsage

from quarterdeck.core.setting_types import Endpoints
from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.attachments import wanted, with_contents, with_selection
from quarterdeck.models.model import (
    MALFORMED_ARGUMENTS,
    NO_OPTIONS,
    AssistantTurn,
    Attachment,
    ContextExceeded,
    CutOff,
    Model,
    ModelFailure,
    ModelOptions,
    RequestRefused,
    Step,
    StepRequest,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
)
from quarterdeck.models.providers import cost_usd
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.models.retry import step_with_retries
from quarterdeck.tools.model import ToolSpec
from tests.contract.provider_server import (
    ANTHROPIC,
    GROQ,
    OPENAI,
    RESPONSES,
    Dialect,
    Provider,
    Reply,
    does_not_answer,
    falls_silent,
    provider,
    refuses,
    resets,
    streams,
    thinking,
)

KEY = "sk-" + "secret" * 8
READ = ToolSpec(
    "read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
)
HELLO = [UserTurn("Hello")]


class Talk:
    """A model at a server that does as it is told."""

    def __init__(self, model: Model, served: Provider, settings: ModelSettings) -> None:
        self.model = model
        self.served = served
        self.shown: list[str] = []
        self.retries: list[tuple[int, float, str]] = []
        self._settings = settings

    async def step(self, turns: Sequence[Turn] = HELLO, instructions: str = "Be brief.") -> Step:
        on_text, settings = self.shown.append, self._settings
        request = StepRequest(instructions, turns, [READ])
        return await step_with_retries(self.model, request, on_text, self._retried, settings)

    def _retried(self, attempt: int, pause_seconds: float, reason: str) -> None:
        self.retries.append((attempt, pause_seconds, reason))


@asynccontextmanager
async def talking(
    dialect: Dialect, *replies: Reply, options: ModelOptions = NO_OPTIONS, **changes: Any
) -> AsyncIterator[Talk]:
    async with provider(*replies) as served:
        defaults: dict[str, Any] = {
            "openai_api_key": KEY,
            "openai_base_url": f"{served.url}/v1",
            "anthropic_api_key": KEY,
            "anthropic_base_url": served.url,
            "retry_base_seconds": 0.01,
            "retry_max_seconds": 2.0,
            # The first request imports much of a provider's library, which takes long on a busy machine.
            "stall_seconds": 60.0,
        }
        settings = ModelSettings(**defaults | dialect.settings | changes)
        models = ModelRegistry(settings)
        try:
            yield Talk(await models.resolve(dialect.model, options), served, settings)
        finally:
            await models.close()


both = pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
all_three = pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])


@pytest.mark.long
@both
async def test_text_is_streamed_and_tokens_are_counted(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.text("Hel", "lo ", "there"))) as talk:
        step = await talk.step()
        assert talk.shown == ["Hel", "lo ", "there"]
        assert (step.turn.text, step.turn.tool_calls) == ("Hello there", [])
        assert (step.input_tokens, step.cached_tokens, step.output_tokens) == (11, 4, 7)
        assert step.cost_usd is None, "no list has a price for this model"
        [request] = talk.served.requests
        assert request.path.partition("?")[0] == dialect.path
        assert request.body["stream"] is True
        assert request.body["model"] == dialect.model.partition(":")[2]
        assert {request.headers.get("authorization"), request.headers.get("x-api-key")} & {f"Bearer {KEY}", KEY}


# Anthropic's library warns about models that will be retired.
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
# Seven new input tokens, four cached ones and seven output tokens, at prices per million tokens.
@pytest.mark.parametrize(
    ("dialect", "model", "cost"),
    [
        (OPENAI, "openai:gpt-4o", "0.0000925"),
        (OPENAI, "openai-chat:gpt-4o", "0.0000925"),
        (ANTHROPIC, "anthropic:claude-sonnet-4-5", "0.0001272"),
    ],
)
async def test_cost_by_list_prices(dialect: Dialect, model: str, cost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a base URL, and without the network: genai-prices would fetch newer prices with httpx2.get."""
    monkeypatch.setattr("httpx2.get", lambda *_, **__: pytest.fail("prices were fetched"))
    async with talking(msgspec.structs.replace(dialect, model=model), streams(dialect.text("Hello"))) as talk:
        assert (await talk.step()).cost_usd == Decimal(cost)


async def test_groq_and_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that pydantic-ai finds by its name, and a server of the setting `endpoints`, with a key each."""
    replies = [
        streams(GROQ.calls("Let me look.", ("call_1", "read", '{"path": "a"}'))),
        refuses(401, GROQ.error("invalid_api_key", f"Wrong key {KEY}")),
        refuses(429, GROQ.error("rate_limit", "Slow down.")),
        streams(GROQ.text("Hel", "lo")),
        streams(OPENAI.text("Hello")),
    ]
    async with provider(*replies) as served:
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        monkeypatch.setenv("GROQ_BASE_URL", served.url)
        monkeypatch.setenv("MY_GPU_API_KEY", "another")
        endpoints = Endpoints.parse(f"my-gpu={served.url}/v1")
        settings = ModelSettings(endpoints=endpoints, retry_base_seconds=0.01)
        models = ModelRegistry(settings)
        talk = Talk(await models.resolve(GROQ.model, ModelOptions(0.5, 77)), served, settings)
        turn = (await talk.step()).turn
        assert (turn.text, turn.tool_calls) == ("Let me look.", [ToolCall("call_1", "read", {"path": "a"})])
        with pytest.raises(ModelFailure, match=r"status 401: Wrong key \[redacted\]\."):
            await talk.step()
        step = await talk.step([*HELLO, turn, ToolResult("call_1", "read", "content")])
        assert (step.turn.text, step.input_tokens, step.output_tokens) == ("Hello", 11, 7)
        of_endpoint = Talk(await models.resolve("my-gpu:llama3.2:3b"), served, settings)
        assert (await of_endpoint.step()).turn.text == "Hello"
        await models.close()
    assert [request.path for request in served.requests] == [GROQ.path] * 4 + [OPENAI.path]
    keys = [request.headers["authorization"] for request in served.requests]
    assert keys == [f"Bearer {KEY}"] * 4 + ["Bearer another"]
    first, *_, last = (request.body for request in served.requests)
    assert (first["model"], first["temperature"], first["stream"]) == ("test-model", 0.5, True)
    assert last["model"] == "llama3.2:3b"


def test_contradictory_usage_has_no_cost() -> None:
    """Some compatible servers report more cached tokens than tokens."""
    assert cost_usd("openai:gpt-4o", RequestUsage(input_tokens=1, cache_read_tokens=5, output_tokens=1)) is None


@both
async def test_tool_calls_come_out_of_the_stream(dialect: Dialect) -> None:
    calls = [("call_1", "read", '{"path": "SKILL.md"}'), ("call_2", "read", '{"path": "ä.md"}')]
    async with talking(dialect, streams(dialect.calls("Let me look.", *calls))) as talk:
        turn = (await talk.step()).turn
        assert turn.text == "Let me look."
        assert turn.tool_calls == [
            ToolCall("call_1", "read", {"path": "SKILL.md"}),
            ToolCall("call_2", "read", {"path": "ä.md"}),
        ]


@both
@pytest.mark.parametrize("written", ['["a"]', '{"path": ', '"text"', '{"path": "a\\u0000"}', '{"path": "\\ud800"}'])
async def test_arguments_that_are_not_an_object_are_kept(dialect: Dialect, written: str) -> None:
    async with talking(dialect, streams(dialect.calls("", ("call_1", "read", written)))) as talk:
        [call] = (await talk.step()).turn.tool_calls
        assert call.arguments == {MALFORMED_ARGUMENTS: written}


@both
async def test_characters_that_postgres_cannot_store_are_replaced(dialect: Dialect) -> None:
    async with talking(dialect, streams(dialect.text("a\0b", "\ud800"))) as talk:
        turn = (await talk.step()).turn
        assert turn.text == "a\ufffdb?"
        assert talk.shown == ["a\ufffdb", "?"]
        assert turn.record is None


# --- what is sent ---

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
    turns = with_selection(turns, "openai:m", ModelSettings(), 100_000)
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


# --- what goes wrong ---


@both
async def test_a_rate_limit_is_waited_for(dialect: Dialect) -> None:
    limited = refuses(429, dialect.error("rate_limit_error", "Slow down"), retry_after="1")
    async with talking(dialect, limited, streams(dialect.text("ok"))) as talk:
        start = time.monotonic()
        assert (await talk.step()).turn.text == "ok"
        assert time.monotonic() - start >= 1
        [(attempt, pause_seconds, reason)] = talk.retries
        assert (attempt, pause_seconds >= 1) == (2, True)
        assert reason == f"{talk.model.name} failed with status 429: Slow down."


@both
async def test_no_provider_makes_a_run_wait_for_an_hour(dialect: Dialect) -> None:
    limited = refuses(429, dialect.error("rate_limit_error", "Slow down"), retry_after="3600")
    async with talking(dialect, limited, streams(dialect.text("ok")), retry_max_seconds=0.2) as talk:
        start = time.monotonic()
        assert (await talk.step()).turn.text == "ok"
        assert time.monotonic() - start >= 0.2


@both
@pytest.mark.parametrize("status", [408, 500, 502, 503, 529])
async def test_a_fault_of_the_provider_is_tried_again(dialect: Dialect, status: int) -> None:
    async with talking(dialect, refuses(status, b"<html>upstream</html>"), streams(dialect.text("ok"))) as talk:
        assert (await talk.step()).turn.text == "ok"
        assert len(talk.served.requests) == 2


@both
async def test_a_fault_that_stays_fails_the_step(dialect: Dialect) -> None:
    broken = refuses(500, dialect.error("api_error", "The disk is on fire"))
    async with talking(dialect, *[broken] * 3, request_retries=2) as talk:
        with pytest.raises(ModelFailure) as failed:
            await talk.step()
        assert str(failed.value) == f"{dialect.model} failed with status 500: The disk is on fire. Tried 3 times."
        assert len(talk.served.requests) == 3


@pytest.mark.long
@both
async def test_a_stalled_stream_is_given_up_and_tried_again(dialect: Dialect) -> None:
    half = dialect.text("Half an", " answer")[: -dialect.closing]
    async with talking(dialect, falls_silent(half), streams(dialect.text("Whole")), stall_seconds=2) as talk:
        assert (await talk.step()).turn.text == "Whole"
        assert talk.shown == ["Half an", " answer", "Whole"]
        await asyncio.wait_for(talk.served.client_left.wait(), 30)


@both
async def test_a_provider_that_never_answers_is_given_up(dialect: Dialect) -> None:
    async with talking(dialect, does_not_answer(), does_not_answer(), stall_seconds=0.2, request_retries=1) as talk:
        with pytest.raises(ModelFailure, match=r"silent for 0\.2 seconds\. Tried 2 times"):
            await talk.step()


@pytest.mark.long
@both
async def test_slow_is_not_stalled(dialect: Dialect) -> None:
    # As a whole it takes longer than a pause may.
    slowly = streams(dialect.text(*"abcdefgh"), pause_seconds=0.3)
    async with talking(dialect, slowly, stall_seconds=2, request_retries=0) as talk:
        assert (await talk.step()).turn.text == "abcdefgh"


@both
async def test_a_connection_reset_in_the_middle_is_tried_again(dialect: Dialect) -> None:
    half = dialect.text("Half an", " answer")[: -dialect.closing]
    async with talking(dialect, resets(half), resets([]), streams(dialect.text("Whole"))) as talk:
        assert (await talk.step()).turn.text == "Whole"
        assert len(talk.served.requests) == 3


@both
async def test_incomplete_answer_that_ends_cleanly_is_refused(dialect: Dialect) -> None:
    half = dialect.text("Half an", " answer")[: -dialect.closing]
    async with talking(dialect, streams(half), streams(dialect.text("Whole"))) as talk:
        assert (await talk.step()).turn.text == "Whole"


@both
async def test_garbage_in_the_stream_is_tried_again(dialect: Dialect) -> None:
    garbage = [*dialect.text("a")[:2], ("message_delta", "{not json")]
    async with talking(dialect, streams(garbage), streams(dialect.text("Whole"))) as talk:
        assert (await talk.step()).turn.text == "Whole"


async def test_overload_reported_inside_the_stream_is_retried() -> None:
    overloaded = [*ANTHROPIC.text("a")[:3], ("error", ANTHROPIC.error("overloaded_error", "Overloaded"))]
    async with talking(ANTHROPIC, streams(overloaded), streams(ANTHROPIC.text("Whole"))) as talk:
        assert (await talk.step()).turn.text == "Whole"


@both
async def test_unreachable_provider_fails_the_step(dialect: Dialect) -> None:
    async with provider() as gone:
        url = gone.url
    addresses: dict[str, Any] = {"openai_base_url": f"{url}/v1", "anthropic_base_url": url}
    async with talking(dialect, request_retries=1, **addresses) as talk:
        with pytest.raises(ModelFailure, match=rf"^{dialect.model} failed: .+ Tried 2 times\.$"):
            await talk.step()


@both
async def test_wrong_key_fails_at_once_and_is_not_shown(dialect: Dialect) -> None:
    wrong = refuses(401, dialect.error("authentication_error", f"Incorrect API key provided: {KEY}"))
    async with talking(dialect, wrong) as talk:
        with pytest.raises(ModelFailure) as failed:
            await talk.step()
        assert "401: Incorrect API key provided: [redacted]." in str(failed.value)
        assert "secret" not in str(failed.value)
        assert len(talk.served.requests) == 1


@both
@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_refusal_fails_at_once_in_few_words(dialect: Dialect, status: int) -> None:
    async with talking(dialect, refuses(status, dialect.error("invalid", "no such thing " * 1000))) as talk:
        with pytest.raises(ModelFailure, match="no such thing") as failed:
            await talk.step()
        # A missing permission or an unknown model has nothing to do with the message.
        assert isinstance(failed.value, RequestRefused) == (status not in (403, 404))
        assert len(str(failed.value)) < 700
        assert len(talk.served.requests) == 1


@pytest.mark.parametrize("code", ["model_not_found", "invalid_api_key"])
async def test_what_is_wrong_with_the_account_does_not_refuse_the_message(code: str) -> None:
    async with talking(OPENAI, refuses(400, OPENAI.error(code, "No."))) as talk:
        with pytest.raises(ModelFailure) as failed:
            await talk.step()
        assert not isinstance(failed.value, RequestRefused)


async def test_an_empty_account_is_not_waited_for() -> None:
    async with talking(OPENAI, refuses(429, OPENAI.error("insufficient_quota", "You exceeded your quota"))) as talk:
        with pytest.raises(ModelFailure, match="You exceeded your quota") as failed:
            await talk.step()
        assert not isinstance(failed.value, RequestRefused)
        assert len(talk.served.requests) == 1


async def test_exceeded_context_is_recognised() -> None:
    too_long = refuses(400, OPENAI.error("context_length_exceeded", "maximum context length is 8192 tokens"))
    async with talking(OPENAI, too_long) as talk:
        with pytest.raises(ContextExceeded, match="8192"):
            await talk.step()


# --- connections ---


@both
async def test_cancelling_closes_the_connection_at_once(dialect: Dialect) -> None:
    half = dialect.text("Half an", " answer")[: -dialect.closing]
    async with talking(dialect, falls_silent(half)) as talk:
        task = asyncio.create_task(talk.step())
        while len(talk.shown) < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(talk.served.client_left.wait(), 30)


@both
async def test_cancelling_before_the_answer_closes_the_connection_at_once(dialect: Dialect) -> None:
    async with talking(dialect, does_not_answer()) as talk:
        task = asyncio.create_task(talk.step())
        while not talk.served.requests:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(talk.served.client_left.wait(), 30)


@both
async def test_steps_share_a_connection(dialect: Dialect) -> None:
    async with talking(dialect, *[streams(dialect.text("ok"))] * 3) as talk:
        for _ in range(3):
            await talk.step()
        assert len(talk.served.connections) == 1


@pytest.mark.parametrize(
    ("model", "path", "changes", "store"),
    [
        ("openai:gpt-test", "/v1/responses", {}, False),
        ("openai:gpt-test", "/v1/responses", {"openai_store": True}, True),
        ("openai:gpt-test", "/v1/chat/completions", {"openai_api": "chat"}, False),
        ("openai-chat:gpt-test", "/v1/chat/completions", {}, False),
    ],
)
async def test_openai_itself(
    model: str, path: str, changes: dict[str, Any], store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a base URL. It is told not to store the conversation."""
    replies = {"/v1/responses": RESPONSES, "/v1/chat/completions": OPENAI}
    async with provider(streams(replies[path].text("ok"))) as served:
        monkeypatch.setattr("quarterdeck.models.providers.OPENAI_URL", f"{served.url}/v1")
        models = ModelRegistry(ModelSettings(openai_api_key=KEY, **changes))
        step = await (await models.resolve(model)).step(StepRequest("", HELLO, [READ]), lambda _: None)
        assert step.turn.text == "ok"
        await models.close()
        [request] = served.requests
        assert (request.path, request.body["store"]) == (path, store)


@pytest.mark.parametrize(
    ("model", "path", "changes"),
    [
        # Compatible servers speak chat completions, and may refuse fields that they do not know.
        ("openai:gpt-test", "/v1/chat/completions", {}),
        ("openai-chat:gpt-test", "/v1/chat/completions", {"openai_api": "responses"}),
        ("openai:gpt-test", "/v1/responses", {"openai_api": "responses"}),
    ],
)
async def test_openai_behind_another_address(model: str, path: str, changes: dict[str, Any]) -> None:
    dialect = RESPONSES if path == "/v1/responses" else OPENAI
    async with provider(streams(dialect.text("ok"))) as served:
        models = ModelRegistry(ModelSettings(openai_base_url=f"{served.url}/v1", **changes))
        step = await (await models.resolve(model)).step(StepRequest("", HELLO, [READ]), lambda _: None)
        assert (step.turn.text, step.input_tokens, step.cached_tokens, step.output_tokens) == ("ok", 11, 4, 7)
        await models.close()
        [request] = served.requests
        assert (request.path, request.body.get("store")) == (path, False if dialect is RESPONSES else None)
