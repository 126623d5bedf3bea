"""Which settings pydantic-ai leaves out of requests, because the model does not take them. It only warns.

The rules are those of its models for OpenAI and Anthropic. A test compares them with what is sent.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_ai.models import Model

from quarterdeck.models.model import ModelOptions

_OPENAI_MODELS = "pydantic_ai.models.openai"


def ignored_settings(model: Model, options: ModelOptions, *, common_effort: bool) -> tuple[str, ...]:
    """`common_effort`: the effort is sent by the common setting, which pydantic-ai translates for each model."""
    profile: Mapping[str, Any] = model.profile
    # Its module is not imported for this: that takes long, and other providers do not need it.
    is_openai = any(kind.__module__ == _OPENAI_MODELS for kind in type(model).__mro__)
    takes_temperature = not profile.get("anthropic_disallows_sampling_settings", False)
    if is_openai:
        takes_temperature = _openai_takes_temperature(profile, options)
    can_think = profile.get("supports_thinking", False) or profile.get("thinking_always_enabled", False)
    takes_effort = can_think or not common_effort
    return (
        *(["temperature"] if options.temperature is not None and not takes_temperature else []),
        *(["reasoning_effort"] if options.reasoning_effort is not None and not takes_effort else []),
    )


def _openai_takes_temperature(profile: Mapping[str, Any], options: ModelOptions) -> bool:
    """Reasoning models take it only while they do not reason."""
    if "temperature" in profile.get("openai_unsupported_model_settings", ()):
        return False
    if not profile.get("openai_supports_reasoning", False):
        return True
    efforts = profile.get("openai_reasoning_efforts")
    can_be_off = profile.get("openai_supports_reasoning_effort_none", False) if efforts is None else "none" in efforts
    reasons = options.reasoning_effort is not None or profile.get("thinking_enabled_by_default", False)
    return can_be_off and not reasons
