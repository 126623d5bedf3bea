"""One step of a run: a request to the model, repeated while another try may succeed."""

import asyncio
import random
from collections.abc import Sequence
from itertools import count

from quarterdeck.agents.model import Model, ModelFailure, OnText, Step, ToolSpec, TransientFailure, Turn
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import ModelSettings


async def model_step(
    model: Model,
    instructions: str,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec],
    on_text: OnText,
    settings: ModelSettings,
) -> Step:
    """The model's next turn, or ModelFailure. Cancelling ends the request under way at once.

    After a try that broke off, `on_text` starts again with the text of the next one.
    """
    for tries in count(1):
        try:
            return await model.step(instructions, turns, tools, on_text)
        except TransientFailure as fault:
            if tries > settings.request_retries:
                times = "once" if tries == 1 else f"{tries} times"
                raise ModelFailure(f"{fault} Tried {times}.") from fault
            pause_seconds = pause_before_retry(tries, fault.retry_after_seconds, settings)
            log.warning(
                "model request failed, trying again",
                extra=fields(model=model.name, tries=tries, pause_seconds=round(pause_seconds, 3), reason=str(fault)),
            )
        await asyncio.sleep(pause_seconds)
    raise AssertionError("the loop above has no end")


def pause_before_retry(tries: int, retry_after_seconds: float | None, settings: ModelSettings) -> float:
    """Twice as long after each try, half of it random: runs that failed together do not come back together."""
    # The exponent is bounded so that many retries do not make a number too large for a float.
    longest = min(settings.retry_base_seconds * 2.0 ** min(tries - 1, 40), settings.retry_max_seconds)
    pause_seconds = longest * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing
    return max(pause_seconds, min(retry_after_seconds or 0.0, settings.retry_max_seconds))
