"""Requests are made so that providers find their beginning in a cache."""

import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai.usage import RequestUsage

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.context import estimate_tokens
from quarterdeck.models.model import NO_OPTIONS, StepRequest, ToolResult, Turn, UserTurn
from quarterdeck.models.providers import cost_usd
from quarterdeck.models.registry import ModelRegistry
from tests.contract.provider_server import ANTHROPIC, OPENAI, RESPONSES, Dialect, provider, streams
from tests.contract.provider_talk import KEY, READ, all_three
from tests.pages import ROOT

STEPS = 20


async def requests(
    dialect: Dialect, steps: int = STEPS, instructions: str = "Be brief.", result: str = "content", **changes: Any
) -> list[Any]:
    """Of a run that calls a tool in every step and is steered in between."""
    calls = [dialect.calls("Reading.", (f"call_{n}", "read", json.dumps({"path": str(n)}))) for n in range(steps)]
    async with provider(*map(streams, calls)) as served:
        settings = ModelSettings(
            openai_api_key=KEY,
            openai_base_url=f"{served.url}/v1",
            anthropic_api_key=KEY,
            anthropic_base_url=served.url,
            **dialect.settings | changes,
        )
        models = ModelRegistry(settings)
        turns: list[Turn] = [UserTurn("Read all of them.")]
        for n in range(steps):
            # Each step might be another worker's.
            model = await models.resolve(dialect.model, NO_OPTIONS, "session-1")
            step = await model.step(StepRequest(instructions, turns, [READ]), lambda _: None)
            turns += [step.turn, *(ToolResult(call.id, call.name, f"{result} {n}") for call in step.turn.tool_calls)]
            if n % 5 == 4:
                turns.append(UserTurn(f"Go on after {n}."))
        await models.close()
        return [request.body for request in served.requests]


def without_marks(value: Any) -> Any:
    """Anthropic's marks of what to keep move on with the newest turn, and are no part of what is compared."""
    if isinstance(value, dict):
        return {name: without_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


def assert_begins_with(later: Any, earlier: Any) -> None:
    """Two requests without marks: nothing has changed in what was sent before, and there may be more behind it."""
    field = "input" if "input" in earlier else "messages"
    assert list(later) == list(earlier)
    for name in earlier:
        one, other = json.dumps(later[name]), json.dumps(earlier[name])
        assert one == other or (name == field and one[:-1].startswith(f"{other[:-1]}, ")), name


@all_three
async def test_a_request_begins_with_the_whole_earlier_one(dialect: Dialect) -> None:
    """With all that can happen to a run: tests/fault/test_steady_requests.py."""
    bodies = [without_marks(body) for body in await requests(dialect)]
    for earlier, later in pairwise(bodies):
        assert_begins_with(later, earlier)
        assert json.dumps(later) != json.dumps(earlier)


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES], ids=["chat", "responses"])
async def test_openai_gets_the_key_of_the_session(dialect: Dialect) -> None:
    [body] = await requests(dialect, 1)
    assert body["prompt_cache_key"] == "session-1"
    [body] = await requests(dialect, 1, cache="off")
    assert "prompt_cache_key" not in body


def marks(body: Any) -> list[Any]:
    return [
        *(body[name][-1].get("cache_control") for name in ("tools", "system")),
        body.get("cache_control") or body["messages"][-1]["content"][-1].get("cache_control"),
    ]


async def test_anthropic_is_told_what_to_keep() -> None:
    for cache, kept in (("standard", "5m"), ("long", "1h")):
        for body in await requests(ANTHROPIC, 3, cache=cache):
            assert marks(body) == [{"type": "ephemeral", "ttl": kept}] * 3
    [body] = await requests(ANTHROPIC, 1, cache="off")
    assert "cache_control" not in json.dumps(body)


# --- what it saves ---

# 2,000 tokens of instructions, results of 1,500, and answers of 200, as agents that read files have them.
INSTRUCTIONS, RESULT, OUTPUT_TOKENS = "word " * 1600, "word " * 1200, 200
# OpenAI's caches keep multiples of this, and cost nothing to write to.
OPENAI_BLOCK_TOKENS = 128


def price(model: str, bodies: list[Any], *, cached: bool) -> Decimal:
    """Of these requests, with their tokens estimated from their bytes. A cache has what the request before had."""
    total, kept = Decimal(0), 0
    for body in bodies:
        tokens = estimate_tokens(json.dumps(body))
        read = kept if model.startswith("anthropic:") else kept // OPENAI_BLOCK_TOKENS * OPENAI_BLOCK_TOKENS
        written = tokens - read if model.startswith("anthropic:") else 0
        usage = RequestUsage(input_tokens=tokens, output_tokens=OUTPUT_TOKENS)
        if cached:
            usage.cache_read_tokens, usage.cache_write_tokens = read, written
        cost = cost_usd(model, usage)
        assert cost is not None
        total, kept = total + cost, tokens
    return total


@pytest.mark.parametrize(
    ("dialect", "model"),
    [(ANTHROPIC, "anthropic:claude-sonnet-5"), (RESPONSES, "openai:gpt-5")],
    ids=["claude", "gpt"],
)
async def test_the_prices_in_the_docs(dialect: Dialect, model: str) -> None:
    bodies = await requests(dialect, 30, INSTRUCTIONS, RESULT)
    without, cached = (price(model, bodies, cached=has) for has in (False, True))
    tokens = sum(estimate_tokens(json.dumps(body)) for body in bodies)
    row = f"| `{model}` | {round(tokens, -3):,} | ${without:.2f} | ${cached:.2f} | {1 - cached / without:.0%} |"
    assert row in (ROOT / "docs/use/models.md").read_text("utf-8"), row
