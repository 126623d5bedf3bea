"""Converts between turns and pydantic-ai's messages.

Imported only when a provider's model is used: pydantic-ai takes a second and 50 MB to import.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    WebCitationSource,
)
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError

from quarterdeck.core.text_types import is_deeper, storable
from quarterdeck.models.attachments import block, image_note, is_text
from quarterdeck.models.context import with_results
from quarterdeck.models.model import (
    MAX_LEVELS,
    AssistantTurn,
    AttachmentContent,
    CitedSource,
    CutOff,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
    read_arguments,
)
from quarterdeck.tools.model import ToolSpec

# Providers reject messages without a visible character; sessions accept them.
_EMPTY = "(an empty message)"
# Also in results of tools.
_NO_OUTPUT = "(no output)"
# No protocol has a field for it.
_CUT_OFF = "(your answer above is not complete: it was cut off)"
# Providers require that a conversation starts with the user, and some that there is a message of the user between two
# answers.
_REMOVED = "(an earlier message was removed)"
# In the names and ids of calls, as all providers accept them. Models and compatible servers write others, too.
_CALL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME_CHARACTERS = 64
# Fields that later requests do not need.
_NOT_RECORDED = ("usage", "timestamp", "run_id", "conversation_id", "metadata", "provider_details")


def to_messages(turns: Sequence[Turn], instructions: str, model_name: str) -> list[ModelMessage]:
    """The turns between two answers become one request: tool results first, then the inputs as one text, with images
    and documents between its parts. Requests and answers alternate: providers refuse two of a kind in a row."""
    messages: list[ModelMessage] = []
    results: list[ModelRequestPart] = []
    inputs: list[UserTurn] = []

    def close_request() -> None:
        parts = [*results, UserPromptPart(_prompt(inputs))] if inputs else [*results]
        messages.append(ModelRequest(parts or [UserPromptPart(_REMOVED)], instructions=instructions or None))
        results.clear()
        inputs.clear()

    for turn in with_results(turns):
        match turn:
            case UserTurn():
                inputs.append(turn)
            case ToolResult():
                outcome: Literal["failed", "success"] = "failed" if turn.is_error else "success"
                results.append(ToolReturnPart(turn.name, _result(turn), turn.call_id, outcome=outcome))
            # A model may give an empty answer, but providers reject empty messages.
            case AssistantTurn() if turn.text.strip() or turn.tool_calls:
                close_request()
                messages.append(_answer(turn, model_name))
                if turn.cut_off is not None:
                    inputs.append(UserTurn(_CUT_OFF))
    if results or inputs:
        close_request()
    return _with_accepted_calls(messages)


def _with_accepted_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Names and ids of calls as all providers accept them: from few characters, and no id twice. Results follow their
    calls in the same order."""
    ids: set[str] = set()
    calls: list[ToolCallPart] = []
    accepted: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = [_accepted_call(part, ids) if isinstance(part, ToolCallPart) else part for part in message.parts]
            calls = [part for part in parts if isinstance(part, ToolCallPart)]
            accepted.append(replace(message, parts=parts))
        else:
            results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            named = [
                replace(cast(Any, result), tool_name=call.tool_name, tool_call_id=call.tool_call_id)
                for call, result in zip(calls, results, strict=False)
            ]
            accepted.append(replace(message, parts=[*named, *message.parts[len(named) :]]))
            calls = []
    return accepted


def _accepted_call(call: ToolCallPart, ids: set[str]) -> ToolCallPart:
    name, call_id = call.tool_name, call.tool_call_id
    if not _CALL_NAME.fullmatch(name):
        name = _OTHER_CHARACTERS.sub("_", name)[:_MAX_NAME_CHARACTERS] or "_"
    number = len(ids)
    while call_id in ids or not _CALL_NAME.fullmatch(call_id):
        number += 1
        call_id = f"call_{number}"
    ids.add(call_id)
    unchanged = (name, call_id) == (call.tool_name, call.tool_call_id)
    return call if unchanged else replace(call, tool_name=name, tool_call_id=call_id)


def _prompt(inputs: Sequence[UserTurn]) -> str | list[UserContent]:
    parts: list[UserContent] = []
    texts: list[str] = []
    for turn in inputs:
        texts.append(turn.text if turn.text.strip() else _EMPTY)
        contents = turn.contents or (AttachmentContent(),) * len(turn.attachments)
        for attachment, content in zip(turn.attachments, contents, strict=True):
            texts.append(block(attachment, content))
            if content.data is not None and not is_text(attachment.media_type):
                # The text before it has the name: pydantic-ai sends none.
                parts += ["\n\n".join(texts), BinaryContent(content.data, media_type=attachment.media_type)]
                texts.clear()
    if not parts:
        return "\n\n".join(texts)
    return [*parts, "\n\n".join(texts)] if texts else parts


def _result(turn: ToolResult) -> str | list[str | BinaryContent]:
    contents = turn.contents or (AttachmentContent(),) * len(turn.images)
    pairs = list(zip(turn.images, contents, strict=True))
    text = "\n".join(
        [turn.content if turn.content.strip() else _NO_OUTPUT, *filter(None, (image_note(*pair) for pair in pairs))]
    )
    images = [BinaryContent(one.data, media_type=image.media_type) for image, one in pairs if one.data is not None]
    return [text, *images] if images else text


def _answer(turn: AssistantTurn, model_name: str) -> ModelMessage:
    # Sorted: PostgreSQL keeps no order of fields, and a worker that reads the log must send the same bytes.
    calls = [
        ToolCallPart(call.name, msgspec.to_builtins(call.arguments, order="sorted"), call.id)
        for call in turn.tool_calls
    ]
    if isinstance(turn.record, dict) and turn.record.get("model") == model_name:
        try:
            [recorded] = ModelMessagesTypeAdapter.validate_python([turn.record.get("response")])
        except ValidationError:
            # Written by another version of pydantic-ai: use text and calls instead.
            pass
        else:
            # A fork may be cut between the calls of an answer. The record has them all.
            found = [storable(part.tool_call_id) for part in recorded.parts if isinstance(part, ToolCallPart)]
            if found == [call.tool_call_id for call in calls]:
                return recorded
    text = [TextPart(turn.text)] if turn.text.strip() else []
    return ModelResponse([*text, *calls])


def to_turn(response: ModelResponse, model_name: str) -> AssistantTurn:
    calls = [
        ToolCall(storable(part.tool_call_id), storable(part.tool_name), read_arguments(part.args))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    cut_off = CutOff(response.finish_reason) if response.finish_reason in list(CutOff) else None
    return AssistantTurn(storable(response.text or ""), calls, _record(response, model_name), cut_off)


def reasoning_of(response: ModelResponse) -> str:
    """Empty: the model has none, or the provider does not show it."""
    thoughts = [part.content for part in response.parts if isinstance(part, ThinkingPart)]
    return storable("\n\n".join(filter(None, thoughts)))


def sources_of(response: ModelResponse) -> tuple[CitedSource, ...]:
    """In the order in which the answer refers to them, each once."""
    found: dict[CitedSource, None] = {}
    for part in response.parts:
        for citation in (part.citations or []) if isinstance(part, TextPart) else []:
            for source in citation.sources:
                url = source.url if isinstance(source, WebCitationSource) else None
                # Other kinds of links could run something in a browser.
                if url is not None and not url.startswith(("https://", "http://")):
                    url = None
                if title := source.title or url:
                    found[CitedSource(storable(title), None if url is None else storable(url))] = None
    return tuple(found)


def _record(response: ModelResponse, model_name: str) -> Any:
    try:
        encoded = ModelMessagesTypeAdapter.dump_json([response], exclude_none=True)
        [dumped] = msgspec.json.decode(encoded)
    except (PydanticSerializationError, msgspec.DecodeError, RecursionError):
        # Half a surrogate pair or too deep nesting: only text and calls are kept.
        return None
    if b"\\u0000" in encoded or is_deeper(dumped, MAX_LEVELS):
        return None
    kept = {key: value for key, value in dumped.items() if key not in _NOT_RECORDED}
    return {"model": model_name, "response": kept}


def to_definition(tool: ToolSpec) -> ToolDefinition:
    return ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description)
