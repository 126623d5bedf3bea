"""The span of one request to a model, with the attributes of OpenTelemetry's conventions for generative AI.

Not pydantic-ai's own spans: they hold the descriptions of tools and the structure of the conversation also when content
is not to be recorded, and the demo model has none.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from quarterdeck.core import tracing
from quarterdeck.models.model import AssistantTurn, Step, StepRequest, ToolResult, Turn
from quarterdeck.tools.model import ToolSpec

# Where the conventions have another name than pydantic-ai.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "xai": "x_ai",
}


def request_span(model: str, request: StepRequest) -> AbstractContextManager[Span]:
    """`model`: `provider:name`, or `demo`."""
    provider, _, rest = model.partition(":")
    name = rest or model
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": name,
    }
    limit = tracing.content_characters()
    if limit is not None:
        attributes |= {
            "gen_ai.system_instructions": _json([{"type": "text", "content": request.instructions[: limit // 2]}]),
            "gen_ai.input.messages": _newest(map(_message, reversed(request.turns)), limit),
            "gen_ai.tool.definitions": _newest(map(_definition, reversed(request.tools)), limit),
        }
    return tracing.span(f"chat {name}", kind=SpanKind.CLIENT, attributes=attributes)


def add_to_request_span(attributes: Mapping[str, str | float | list[str] | None]) -> None:
    """What only the model knows of its request. None is left out."""
    for name, value in attributes.items():
        if value is not None:
            trace.get_current_span().set_attribute(name, value)


def add_step(span: Span, step: Step) -> None:
    if not span.is_recording():
        return
    span.set_attribute("gen_ai.usage.input_tokens", step.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", step.output_tokens)
    span.set_attribute("gen_ai.usage.cache_read.input_tokens", step.cached_tokens)
    span.set_attribute("gen_ai.usage.cache_creation.input_tokens", step.cache_write_tokens)
    limit = tracing.content_characters()
    if limit is not None:
        span.set_attribute("gen_ai.output.messages", _newest(iter([_message(step.turn)]), limit))


def _message(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, ToolResult):
        response = {"type": "tool_call_response", "id": turn.call_id, "response": turn.content}
        return {"role": "tool", "parts": [response]}
    text = {"type": "text", "content": turn.text}
    if not isinstance(turn, AssistantTurn):
        return {"role": "user", "parts": [text]}
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls
    ]
    return {"role": "assistant", "parts": [text, *calls] if turn.text else calls}


def _definition(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


def _newest(newest_first: Iterator[dict[str, Any]], limit: int) -> str:
    """A JSON array of those that fit, in their original order: a text that is cut in the middle is no JSON."""
    kept: list[str] = []
    for one in newest_first:
        encoded = _json(one)
        limit -= len(encoded) + 1
        if limit < 1:
            break
        kept.append(encoded)
    return f"[{','.join(reversed(kept))}]"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
