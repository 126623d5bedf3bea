"""What a step does if its provider refuses, stalls, breaks off or sends garbage, and when it is cancelled."""

import asyncio
import json
from typing import Any, Literal

import pytest

from quarterdeck.models.model import (
    ContentRefused,
    ContextExceeded,
    ModelFailure,
    ProviderRefused,
)
from tests.contract.provider_server import (
    ANTHROPIC,
    OPENAI,
    RESPONSES,
    Dialect,
    does_not_answer,
    dribbles,
    falls_silent,
    halves,
    provider,
    refuses,
    resets,
    streams,
)
from tests.contract.provider_talk import KEY, all_three, both, talking


@both
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_provider_that_takes_no_requests_is_not_asked_again(dialect: Dialect, status: int) -> None:
    """For how long is decided for all runs together: tests/fault/test_refusing_provider.py."""
    limited = refuses(status, dialect.error("rate_limit_error", "Slow down"), retry_after="7")
    async with talking(dialect, limited) as talk:
        with pytest.raises(ProviderRefused) as refused:
            await talk.step()
        assert str(refused.value) == f"{talk.model.name} failed with status {status}: Slow down."
        assert refused.value.retry_after_seconds == 7
        assert (talk.retries, len(talk.served.requests)) == ([], 1)


@both
@pytest.mark.parametrize("status", [408, 500, 502])
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


@all_three
async def test_events_in_packets_that_end_anywhere(dialect: Dialect) -> None:
    said = "Größe: 5 € 😀, "
    for size in (1, 7, 1000):
        async with talking(dialect, dribbles(dialect.text(*[said] * 3), size), request_retries=0) as talk:
            assert (await talk.step()).turn.text == said * 3
            assert "".join(talk.shown) == said * 3


@pytest.mark.long
@all_three
@pytest.mark.parametrize("end", ["ends", "resets", "falls silent"])
async def test_half_an_event_and_no_more(dialect: Dialect, end: Literal["ends", "resets", "falls silent"]) -> None:
    """Half of a text, and half of the event that would have completed the answer: chat has the reason of the end two
    events before its last, the others with the last or before it."""
    async with talking(dialect, streams(dialect.text("ok"))) as talk:
        # Imports the library, which takes longer than the stall.
        await talk.step()
    whole = dialect.text("Half an", " answer")
    for cut in (len(whole) - dialect.closing - (dialect is not OPENAI), len(whole) - dialect.closing + 1):
        async with talking(dialect, halves(whole[:cut], end), streams(dialect.text("Whole")), stall_seconds=2) as talk:
            step = await talk.step()
            assert (step.turn.text, step.output_tokens) == ("Whole", 7)
            assert "".join(talk.shown).removesuffix("Whole") in ("Half an", "Half an answer")
            assert len(talk.retries) == 1


@all_three
async def test_events_that_come_twice_count_once(dialect: Dialect) -> None:
    """Except for text without a number, which the model may have meant. Arguments that are no JSON any more are
    answered with an error."""
    is_numbered = dialect is RESPONSES
    for events in (dialect.text("One ", "two."), dialect.calls("One two.", ("call_1", "read", '{"path": "a"}'))):
        for at, event in enumerate(events):
            if not is_numbered and is_text(event[1]):
                continue
            async with talking(dialect, streams([*events[:at], event, *events[at:]]), request_retries=0) as talk:
                step = await talk.step()
            assert (step.turn.text, "".join(talk.shown)) == ("One two.", "One two."), event
            assert (step.input_tokens, step.cached_tokens, step.output_tokens) == (11, 4, 7), event
            assert [call.arguments for call in step.turn.tool_calls] in ([], [{"path": "a"}]), event


def is_text(data: Any) -> bool:
    return any(f'"{name}": "' in json.dumps(data) for name in ("text", "partial_json", "content", "arguments"))


async def test_overload_reported_inside_the_stream() -> None:
    overloaded = [*ANTHROPIC.text("a")[:3], ("error", ANTHROPIC.error("overloaded_error", "Overloaded"))]
    async with talking(ANTHROPIC, streams(overloaded)) as talk:
        with pytest.raises(ProviderRefused):
            await talk.step()


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
        assert isinstance(failed.value, ContentRefused) == (status not in (403, 404))
        assert len(str(failed.value)) < 700
        assert len(talk.served.requests) == 1


@pytest.mark.parametrize("code", ["model_not_found", "invalid_api_key"])
async def test_what_is_wrong_with_the_account_does_not_refuse_the_message(code: str) -> None:
    async with talking(OPENAI, refuses(400, OPENAI.error(code, "No."))) as talk:
        with pytest.raises(ModelFailure) as failed:
            await talk.step()
        assert not isinstance(failed.value, ContentRefused)


async def test_an_empty_account_is_not_waited_for() -> None:
    async with talking(OPENAI, refuses(429, OPENAI.error("insufficient_quota", "You exceeded your quota"))) as talk:
        with pytest.raises(ModelFailure, match="You exceeded your quota") as failed:
            await talk.step()
        assert not isinstance(failed.value, ContentRefused)
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
