"""What real providers refuse, for every stand-in of the tests: the checks of OpenAI's chat completions and responses
and of Anthropic's messages, with their statuses and texts as users report them.

A stand-in that takes anything hides the requests that would end a session at a real provider. Only rules that the real
services enforce belong here: OpenAI takes two user messages in a row, and an empty text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct

# Parts of the names of models that take no images.
_TEXT_ONLY = ("gpt-3.5", "o1-mini", "o3-mini", "text-only", "claude-2", "claude-text-only")
# Such models take no temperature.
_REASONING = re.compile(r"(o[134](-.*)?|gpt-5(-mini|-nano)?(-\d.*)?)")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_CACHE_MARKS = 4


def _fields(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


_CHAT_FIELDS = _fields(
    "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model n",
    "parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort response_format seed",
    "service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity",
)
_CHAT_MESSAGE_FIELDS = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "audio", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_RESPONSES_FIELDS = _fields(
    "background conversation include input instructions max_output_tokens max_tool_calls metadata model",
    "parallel_tool_calls previous_response_id prompt prompt_cache_key reasoning safety_identifier service_tier store",
    "stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user",
)
_ITEM_FIELDS = {
    "message": frozenset({"type", "id", "status", "role", "content", "phase"}),
    "function_call": frozenset({"type", "id", "status", "call_id", "name", "arguments", "namespace"}),
    "function_call_output": frozenset({"type", "id", "status", "call_id", "output"}),
    "reasoning": frozenset({"type", "id", "status", "summary", "content", "encrypted_content"}),
}
_MESSAGES_FIELDS = _fields(
    "cache_control container context_management max_tokens mcp_servers messages metadata model output_config",
    "output_format service_tier stop_sequences stream system temperature thinking tool_choice tools top_k top_p",
)
_BLOCK_FIELDS = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "cache_control", "citations", "context", "title"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}


class Refused(Struct, frozen=True):
    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


def refusal(path: str, body: Any) -> Refused | None:
    """What the provider behind this path says to the request. None: it answers."""
    route = path.partition("?")[0]
    checks = next((found for end, found in _CHECKS.items() if route.endswith(end)), None)
    return None if checks is None else next(checks(body), None)


# --- OpenAI ---


def _openai(message: str, param: str | None, code: str | None = None, status: int = 400) -> Refused:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Refused(status, {"error": error})


def _empty_array(path: str) -> Refused:
    text = f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return _openai(text, path, "empty_array")


def _unknown(found: dict[str, Any], known: Iterable[str], path: str) -> Iterator[Refused]:
    for name in found:
        if name not in known:
            yield _openai(f"Unknown parameter: '{path}.{name}'.", f"{path}.{name}", "unknown_parameter")


def _bad_name(name: Any, path: str) -> Iterator[Refused]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        text = f"Invalid '{path}': string does not match pattern. "
        yield _openai(f"{text}Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", path, "invalid_value")


def _temperature(body: dict[str, Any]) -> Iterator[Refused]:
    if "temperature" in body and _REASONING.fullmatch(str(body.get("model"))):
        text = "Unsupported parameter: 'temperature' is not supported with this model."
        yield _openai(text, "temperature", "unsupported_parameter")


def _chat(body: dict[str, Any]) -> Iterator[Refused]:
    unknown = [name for name in body if name not in _CHAT_FIELDS]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        yield _openai(f"Unrecognized request argument{plural} supplied: {', '.join(unknown)}", None)
    yield from _temperature(body)
    messages: list[dict[str, Any]] = body.get("messages") or []
    if "messages" not in body:
        yield _openai("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    if not messages:
        yield _empty_array("messages")
    for at, message in enumerate(messages):
        yield from _chat_message(message, at, str(body.get("model")))
    yield from _chat_calls(messages)
    for at, tool in enumerate(body.get("tools", [])):
        yield from _bad_name(tool["function"]["name"], f"tools[{at}].function.name")


def _chat_message(message: dict[str, Any], at: int, model: str) -> Iterator[Refused]:
    role = message.get("role")
    if role not in _CHAT_MESSAGE_FIELDS:
        supported = ", ".join(f"'{name}'" for name in ("system", "assistant", "user", "function", "tool"))
        text = f"Invalid value: '{role}'. Supported values are: {supported}, and 'developer'."
        yield _openai(text, f"messages[{at}].role", "invalid_value")
        return
    yield from _unknown(message, _CHAT_MESSAGE_FIELDS[role], f"messages[{at}]")
    content = message.get("content")
    if content == []:
        yield _empty_array(f"messages[{at}].content")
    if content is None and not message.get("tool_calls"):
        yield _openai("Invalid value for 'content': expected a string, got null.", f"messages.[{at}].content")
    if message.get("tool_calls") == []:
        yield _empty_array(f"messages[{at}].tool_calls")
    for number, part in enumerate(content if isinstance(content, list) else []):
        if part["type"] == "image_url" and model.startswith(_TEXT_ONLY):
            text = "Invalid content type. image_url is only supported by certain models."
            yield _openai(text, f"messages.[{at}].content.[{number}].type")
    for number, call in enumerate(message.get("tool_calls", [])):
        yield from _bad_name(call["function"]["name"], f"messages[{at}].tool_calls[{number}].function.name")


def _chat_calls(messages: list[dict[str, Any]]) -> Iterator[Refused]:
    """Every call is answered directly after the message that makes it, and nothing else is."""
    asked, results = -1, False
    open_ids: list[str] = []
    for at, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if not results:
                text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                yield _openai(f"{text}'tool_calls'.", f"messages.[{at}].role")
            elif message["tool_call_id"] not in open_ids:
                text = f"Invalid parameter: 'tool_call_id' of '{message['tool_call_id']}' not found in 'tool_calls' of "
                yield _openai(f"{text}previous message.", f"messages.[{at}].tool_call_id")
            else:
                open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            text += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            yield _openai(text + ", ".join(open_ids), f"messages.[{asked + 1}].role")
        asked, open_ids = at, [call["id"] for call in message.get("tool_calls") or []]
        results = bool(open_ids)


def _responses(body: dict[str, Any]) -> Iterator[Refused]:
    for name in body:
        if name not in _RESPONSES_FIELDS:
            yield _openai(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    yield from _temperature(body)
    items = body.get("input")
    if items is None:
        yield _openai("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    if items == []:
        yield _empty_array("input")
    items = items if isinstance(items, list) else []
    for at, item in enumerate(items):
        yield from _item(item, at, body)
    yield from _function_calls(items)
    for at, tool in enumerate(body.get("tools", [])):
        if tool.get("type") == "function":
            yield from _bad_name(tool["name"], f"tools[{at}].name")


def _function_calls(items: list[dict[str, Any]]) -> Iterator[Refused]:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs: list[str] = []
    for item in items:
        if item.get("type") == "function_call_output":
            if item["call_id"] not in calls:
                text = f"No tool call found for function call output with call_id {item['call_id']}."
                yield _openai(text, "input")
            outputs.append(item["call_id"])
    for call_id in calls:
        if call_id not in outputs:
            yield _openai(f"No tool output found for function call {call_id}.", "input")


def _item(item: dict[str, Any], at: int, body: dict[str, Any]) -> Iterator[Refused]:
    kind = item.get("type", "message")
    if kind not in _ITEM_FIELDS:
        yield _openai(f"Invalid value: '{kind}'.", f"input[{at}]", "invalid_value")
        return
    yield from _unknown(item, _ITEM_FIELDS[kind], f"input[{at}]")
    if kind == "message" and item.get("content") in (None, []):
        yield _empty_array(f"input[{at}].content")
    if kind == "function_call":
        yield from _bad_name(item["name"], f"input[{at}].name")
    if kind == "reasoning" and body.get("store") is False and not item.get("encrypted_content"):
        text = f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. "
        text += "Try again with `store` set to true, or remove this item from your input."
        yield _openai(text, "input", status=404)
    parts = item.get("content") if kind == "message" else item.get("output")
    for number, part in enumerate(parts if isinstance(parts, list) else []):
        if part["type"] == "input_image" and str(body.get("model")).startswith(_TEXT_ONLY):
            text = "Invalid content type. input_image is only supported by certain models."
            yield _openai(text, f"input[{at}].content[{number}].type")


# --- Anthropic ---


def _anthropic(message: str) -> Refused:
    error = {"type": "invalid_request_error", "message": message}
    return Refused(400, {"type": "error", "error": error, "request_id": "req_stand_in"})


def _extra(found: dict[str, Any], known: Iterable[str], path: str = "") -> Iterator[Refused]:
    for name in found:
        if name not in known:
            yield _anthropic(f"{path}{name}: Extra inputs are not permitted")


def _messages(body: dict[str, Any]) -> Iterator[Refused]:
    yield from _extra(body, _MESSAGES_FIELDS)
    for name in ("max_tokens", "messages", "model"):
        if name not in body:
            yield _anthropic(f"{name}: Field required")
    messages = body["messages"]
    if not messages:
        yield _anthropic("messages: at least one message is required")
    system = body.get("system")
    for block in system if isinstance(system, list) else [{"text": system}] if system is not None else []:
        if not block["text"]:
            yield _anthropic("system: text content blocks must be non-empty")
    for at, message in enumerate(messages):
        yield from _message(message, at, at == len(messages) - 1, str(body["model"]))
    yield from _roles(messages)
    yield from _tool_uses(messages)
    marks = sum(1 for _ in _cache_marks(body))
    if marks > _MAX_CACHE_MARKS:
        text = f"A maximum of {_MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {marks}."
        yield _anthropic(text)
    names = [tool.get("name") for tool in body.get("tools", [])]
    if len(set(names)) < len(names):
        yield _anthropic("tools: Tool names must be unique.")


def _roles(messages: list[dict[str, Any]]) -> Iterator[Refused]:
    if messages[0]["role"] != "user":
        yield _anthropic('messages: first message must use the "user" role')
    for one, other in pairwise(messages):
        if one["role"] == other["role"]:
            text = 'messages: roles must alternate between "user" and "assistant", but found multiple '
            yield _anthropic(f'{text}"{one["role"]}" roles in a row')


def _message(message: dict[str, Any], at: int, is_last: bool, model: str) -> Iterator[Refused]:
    yield from _extra(message, {"role", "content"}, f"messages.{at}.")
    if message["role"] not in ("user", "assistant"):
        yield _anthropic(f"messages.{at}.role: Input should be 'user' or 'assistant'")
    blocks = _blocks(message)
    if not blocks and not (is_last and message["role"] == "assistant"):
        text = "all messages must have non-empty content except for the optional final assistant message"
        yield _anthropic(f"messages.{at}: {text}")
    for number, block in enumerate(blocks):
        kind, path = block["type"], f"messages.{at}.content.{number}"
        if kind not in _BLOCK_FIELDS:
            tags = ", ".join(f"'{name}'" for name in _BLOCK_FIELDS)
            text = f"Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
            yield _anthropic(f"{path}: {text}")
            continue
        yield from _block(block, path, model)
    if is_last and message["role"] == "assistant" and blocks and blocks[-1].get("text", "x")[-1:].isspace():
        yield _anthropic("messages: final assistant content cannot end with trailing whitespace")


def _block(block: dict[str, Any], path: str, model: str) -> Iterator[Refused]:
    kind = block["type"]
    yield from _extra(block, _BLOCK_FIELDS[kind], f"{path}.{kind}.")
    inner = block.get("content") if kind == "tool_result" else None
    for one in [block, *(inner if isinstance(inner, list) else [])]:
        yield from _text_or_image(one, model)
    if kind == "tool_use":
        for name in ("id", "name"):
            if not _NAME.fullmatch(block[name]):
                yield _anthropic(f"{path}.tool_use.{name}: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(block["input"], dict):
            yield _anthropic(f"{path}.tool_use.input: Input should be a valid dictionary")


def _text_or_image(block: dict[str, Any], model: str) -> Iterator[Refused]:
    if block["type"] == "text":
        if not block["text"]:
            yield _anthropic("messages: text content blocks must be non-empty")
        elif not block["text"].strip():
            yield _anthropic("messages: text content blocks must contain non-whitespace text")
    if block["type"] == "image" and model.startswith(_TEXT_ONLY):
        yield _anthropic(f"'{model}' does not support image input.")


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _tool_uses(messages: list[dict[str, Any]]) -> Iterator[Refused]:
    seen: set[str] = set()
    asked: list[str] = []
    for at, message in enumerate([*messages, {"role": "end", "content": []}]):
        results = [block["tool_use_id"] for block in _blocks(message) if block["type"] == "tool_result"]
        missing = [tool_id for tool_id in asked if tool_id not in results]
        # The last message may be an answer with calls only if nothing follows, which we never send.
        if missing:
            text = f"messages.{at - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            text += f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
            yield _anthropic(f"{text}next message.")
        for number, block in enumerate(_blocks(message)):
            if block["type"] == "tool_result" and block["tool_use_id"] not in asked:
                text = f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                text += f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block "
                yield _anthropic(f"{text}in the previous message.")
        if len(set(results)) < len(results):
            text = "each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
            yield _anthropic(f"messages.{at}.content: {text}{max(results, key=results.count)}")
        asked = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
        for number, tool_id in enumerate(asked):
            if tool_id in seen:
                yield _anthropic(f"messages.{at}.content.{number}: `tool_use` ids must be unique")
            seen.add(tool_id)


def _cache_marks(value: Any) -> Iterator[None]:
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield None
        for name, inner in value.items():
            # Schemas and arguments of tools may have fields of this name.
            if name not in ("input_schema", "input"):
                yield from _cache_marks(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _cache_marks(inner)


_CHECKS: dict[str, Callable[[Any], Iterator[Refused]]] = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _messages,
}
