"""A request to a model, with retries after transient failures."""

import asyncio
import random
from itertools import count

from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.model import (
    Model,
    ModelFailure,
    OnRetry,
    OnText,
    ProviderRefused,
    Step,
    StepRequest,
    TransientFailure,
)
from quarterdeck.models.model_spans import add_step, request_span


async def step_with_retries(
    model: Model,
    request: StepRequest,
    on_text: OnText,
    on_retry: OnRetry,
    settings: ModelSettings,
    *,
    once: bool = False,
) -> Step:
    """Raises ModelFailure when the retries are used up, and ProviderRefused at once: what to do then is decided for all
    runs together. `once`: there are no retries, and any TransientFailure is raised. After a failed try, `on_text` gets
    the text of the next try from its beginning."""
    for tries in count(1):
        try:
            with request_span(model.name, request) as span:
                step = await model.step(request, on_text)
                add_step(span, step)
                return step
        except ProviderRefused:
            raise
        except TransientFailure as fault:
            if once:
                raise
            if tries > settings.request_retries:
                times = "once" if tries == 1 else f"{tries} times"
                raise ModelFailure(f"{fault} Tried {times}.") from fault
            pause_seconds = pause_before_retry(tries, fault.retry_after_seconds, settings)
            log.warning(
                "model request failed, trying again",
                extra=fields(model=model.name, tries=tries, pause_seconds=round(pause_seconds, 3), reason=str(fault)),
            )
            on_retry(tries + 1, pause_seconds, str(fault))
        await asyncio.sleep(pause_seconds)
    raise AssertionError("unreachable")


def pause_before_retry(tries: int, retry_after_seconds: float | None, settings: ModelSettings) -> float:
    """Exponential backoff with jitter, and at least the provider's Retry-After."""
    # The exponent is bounded: 2.0 ** 1024 overflows.
    longest = min(settings.retry_base_seconds * 2.0 ** min(tries - 1, 40), settings.retry_max_seconds)
    pause_seconds = longest * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing
    return max(pause_seconds, min(retry_after_seconds or 0.0, settings.retry_max_seconds))
