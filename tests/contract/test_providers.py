"""Steps of a run over HTTP, against servers that speak the protocols of OpenAI and Anthropic."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic_ai.usage import RequestUsage

from quarterdeck.core.setting_types import Endpoints
from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.model import (
    MALFORMED_ARGUMENTS,
    ModelFailure,
    ModelOptions,
    ProviderRefused,
    StepRequest,
    ToolCall,
    ToolResult,
)
from quarterdeck.models.providers import cost_usd
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
)
from tests.contract.provider_talk import HELLO, KEY, READ, Talk, both, talking


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
        with pytest.raises(ProviderRefused, match="status 429: Slow down"):
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


async def test_what_pydantic_ai_cannot_send_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:9/v1")
    models = ModelRegistry(ModelSettings(openai_api_key=KEY, anthropic_api_key=KEY))
    for name, taken in (
        ("openai:gpt-5", (True, True, True)),
        ("openai-chat:gpt-5", (True, True, True)),
        ("anthropic:claude-sonnet-4-5", (True, True, True)),
        # Its chat completions have no documents.
        ("vllm:qwen3", (True, True, False)),
    ):
        model = await models.resolve(name)
        assert tuple(map(model.takes, ("text/plain", "image/png", "application/pdf"))) == taken, name
    await models.close()


@pytest.mark.parametrize("model", ["openai:gpt-5", "openai:gpt-3.5-turbo", "anthropic:claude-sonnet-4-5"])
def test_batches_cost_half(model: str) -> None:
    """Also of a model without a listed price for batches."""
    usage = RequestUsage(input_tokens=1000, output_tokens=100)
    cost = cost_usd(model, usage)
    assert cost is not None
    assert cost > 0
    assert cost_usd(model, usage, by_batch=True) == cost / 2
    assert cost_usd("gpu:unknown", usage, by_batch=True) is None


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
