"""What answers have beside their text: reasoning, which some providers want back, and sources."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from quarterdeck.models.model import AssistantTurn, CitedSource, UserTurn
from tests.contract.provider_server import (
    ANTHROPIC,
    OPENAI,
    RESPONSES,
    Dialect,
    Event,
    cited,
    cited_in_chat,
    reasoned,
    streams,
    thinking,
    thinking_in_chat,
)
from tests.contract.provider_talk import HELLO, talking

THOUGHT, SECRET, URL, TITLE = "Let me think.", "c2lnbmVk", "https://example.com/a", "A page"
REASONS = msgspec.structs.replace(RESPONSES, model="openai:gpt-5")


class Detailed(Struct, frozen=True):
    dialect: Dialect
    events: list[Event]
    reasoning: str = ""
    sources: tuple[CitedSource, ...] = ()


PAGE = (CitedSource(TITLE, URL),)
ANSWERS = {
    "anthropic thinks": Detailed(ANTHROPIC, thinking(THOUGHT, SECRET, "Yes."), THOUGHT),
    "anthropic cites": Detailed(ANTHROPIC, cited("Yes.", URL, TITLE), sources=PAGE),
    "chat thinks": Detailed(OPENAI, thinking_in_chat(THOUGHT, "Yes."), THOUGHT),
    "chat cites": Detailed(OPENAI, cited_in_chat("Yes.", URL, TITLE), sources=PAGE),
    "responses": Detailed(REASONS, reasoned(THOUGHT, SECRET, "Yes.", URL, TITLE), THOUGHT, PAGE),
    "no page": Detailed(OPENAI, cited_in_chat("Yes.", "javascript:alert(1)", TITLE), sources=(CitedSource(TITLE),)),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_reasoning_and_sources_are_kept(name: str) -> None:
    answer = ANSWERS[name]
    replies = [streams(answer.events), streams(answer.dialect.text("ok"))]
    async with talking(answer.dialect, *replies) as talk:
        step = await talk.step()
        assert (step.turn.text, step.reasoning, step.sources) == ("Yes.", answer.reasoning, answer.sources)
        assert "".join(talk.shown) == "Yes."
        # The stand-in refuses what OpenAI would refuse. A server that sends `reasoning_content` takes it, too.
        if name != "chat thinks":
            await talk.step([*HELLO, stored(step.turn), UserTurn("Sure?")])


def stored(turn: AssistantTurn) -> AssistantTurn:
    """As PostgreSQL gives it back: it keeps no order of fields."""
    return msgspec.structs.replace(turn, record=json.loads(json.dumps(turn.record, sort_keys=True)))


def signed(body: Any) -> bool:
    return SECRET in json.dumps(body)


@pytest.mark.parametrize("name", ["anthropic thinks", "responses"])
async def test_what_is_signed_goes_back_to_the_same_model_only(name: str) -> None:
    answer = ANSWERS[name]
    async with talking(answer.dialect, streams(answer.events), streams(answer.dialect.text("ok"))) as talk:
        turn = stored((await talk.step()).turn)
        await talk.step([*HELLO, turn, UserTurn("Sure?")])
        assert signed(talk.served.requests[1].body)
    for other in (ANTHROPIC, OPENAI, REASONS):
        if other is not answer.dialect:
            async with talking(other, streams(other.text("ok"))) as talk:
                await talk.step([*HELLO, turn, UserTurn("Sure?")])
                body = talk.served.requests[0].body
                assert not signed(body)
                assert THOUGHT not in json.dumps(body)
                assert "Yes." in json.dumps(body)


async def test_a_summary_of_the_reasoning_is_asked_for_where_there_is_one() -> None:
    for model, asked in (("openai:gpt-5", {"summary": "auto"}), ("openai:gpt-4o", None)):
        dialect = msgspec.structs.replace(RESPONSES, model=model)
        async with talking(dialect, streams(dialect.text("ok")), openai_reasoning_summary="auto") as talk:
            await talk.step()
            body = talk.served.requests[0].body
            assert body.get("reasoning") == asked
            assert ("reasoning.encrypted_content" in body.get("include", [])) == (asked is not None)
            assert body["store"] is False
