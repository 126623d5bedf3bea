"""What the stand-ins of the tests refuse, with the words of the real providers."""

from typing import Any

import pytest

from tests.strict_provider import Refused, refusal

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages?beta=true"
PNG = "data:image/png;base64,AA=="
Json = dict[str, Any]


def chat(*messages: Json, **fields: Any) -> Json:
    return {"model": "m", "messages": list(messages), "stream": True, **fields}


def responses(*items: Json, **fields: Any) -> Json:
    return {"model": "m", "input": list(items), "stream": True, **fields}


def messages(*given: Json, **fields: Any) -> Json:
    return {"model": "m", "max_tokens": 10, "messages": list(given), **fields}


def said(role: str, content: Any, **fields: Any) -> Json:
    return {"role": role, "content": content, **fields}


def chat_call(*ids: str) -> Json:
    calls = [{"id": one, "type": "function", "function": {"name": "read", "arguments": "{}"}} for one in ids]
    return said("assistant", None, tool_calls=calls)


def chat_result(call_id: str) -> Json:
    return said("tool", "ok", tool_call_id=call_id)


def item(kind: str, call_id: str, **fields: Any) -> Json:
    return {"type": kind, "call_id": call_id, **fields}


def use(*ids: str) -> Json:
    return said("assistant", [{"type": "tool_use", "id": one, "name": "read", "input": {}} for one in ids])


def used(*ids: str) -> Json:
    return said("user", [{"type": "tool_result", "tool_use_id": one, "content": "ok"} for one in ids])


def text(value: str, **fields: Any) -> Json:
    return {"type": "text", "text": value, **fields}


HELLO = said("user", "Hello")
MARK = {"cache_control": {"type": "ephemeral"}}
CALL, OUTPUT = item("function_call", "c1", name="read", arguments="{}"), item("function_call_output", "c1", output="ok")

TAKEN = [
    (CHAT, chat(HELLO, HELLO, chat_call("c1", "c2"), chat_result("c2"), chat_result("c1"), HELLO, temperature=0.5)),
    # Ids are compared within one answer.
    (CHAT, chat(HELLO, chat_call("c1"), chat_result("c1"), chat_call("c1"), chat_result("c1"))),
    (CHAT, chat(said("user", ""), model="gpt-5")),
    (RESPONSES, responses(HELLO, CALL, OUTPUT, HELLO, store=False)),
    (RESPONSES, responses({"type": "reasoning", "id": "rs_1", "summary": []}, HELLO)),
    (RESPONSES, responses({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, store=False)),
    (MESSAGES, messages(HELLO, use("a", "b"), used("b", "a"), system=[text("Be brief.", **MARK)])),
    ("/v1/models", {}),
]


@pytest.mark.parametrize(("path", "body"), TAKEN)
def test_taken(path: str, body: Json) -> None:
    assert refusal(path, body) is None


IMAGE = [{"type": "image_url", "image_url": {"url": PNG}}]
SOURCE = {"type": "base64", "media_type": "image/png", "data": "AA=="}
REFUSED = [
    (CHAT, chat(), "Invalid 'messages': empty array."),
    (CHAT, chat(HELLO, chat_call("c1", "c2"), chat_result("c1"), HELLO), "did not have response messages: c2"),
    (CHAT, chat(HELLO, chat_call("c1")), "did not have response messages: c1"),
    (CHAT, chat(HELLO, chat_result("c1")), "must be a response to a preceeding message with 'tool_calls'."),
    (CHAT, chat(HELLO, chat_call("c1"), chat_result("c1"), chat_result("c1")), "'tool_call_id' of 'c1' not found"),
    (CHAT, chat(HELLO, chat_call("c1"), HELLO, chat_result("c1")), "did not have response messages: c1"),
    (CHAT, chat(said("assistant", None)), "Invalid value for 'content': expected a string, got null."),
    (CHAT, chat(said("user", [])), "Invalid 'messages[0].content': empty array."),
    (CHAT, chat(HELLO, thinking=True), "Unrecognized request argument supplied: thinking"),
    (CHAT, chat(said("user", "a", note="b")), "Unknown parameter: 'messages[0].note'."),
    (CHAT, chat(said("bot", "a")), "Invalid value: 'bot'."),
    (CHAT, chat(said("user", IMAGE), model="gpt-3.5-turbo"), "image_url is only supported by certain models."),
    (CHAT, chat(HELLO, model="o3-mini", temperature=1), "'temperature' is not supported with this model."),
    (RESPONSES, responses(), "Invalid 'input': empty array."),
    (RESPONSES, responses(HELLO, CALL), "No tool output found for function call c1."),
    (RESPONSES, responses(HELLO, OUTPUT), "No tool call found for function call output with call_id c1."),
    (RESPONSES, responses(HELLO, max_tokens=1), "Unknown parameter: 'max_tokens'."),
    (RESPONSES, responses(said("user", "a", note="b")), "Unknown parameter: 'input[0].note'."),
    (
        RESPONSES,
        responses({"type": "reasoning", "id": "rs_1", "summary": []}, store=False),
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
    (MESSAGES, messages(), "messages: at least one message is required"),
    (
        MESSAGES,
        messages(HELLO, use("a")),
        "`tool_use` ids were found without `tool_result` blocks immediately after: a",
    ),
    (MESSAGES, messages(HELLO, use("a", "b"), used("a")), "immediately after: b. Each `tool_use` block must have"),
    (MESSAGES, messages(used("a")), "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."),
    (MESSAGES, messages(HELLO, use("a"), used("a", "a")), "Found multiple `tool_result` blocks with id: a"),
    (MESSAGES, messages(HELLO, use("a"), used("a"), use("a"), used("a")), "`tool_use` ids must be unique"),
    (MESSAGES, messages(said("assistant", "a"), HELLO), 'first message must use the "user" role'),
    (MESSAGES, messages(HELLO, HELLO), 'found multiple "user" roles in a row'),
    (MESSAGES, messages(said("user", [text("")])), "messages: text content blocks must be non-empty"),
    (MESSAGES, messages(said("user", [text(" ")])), "text content blocks must contain non-whitespace text"),
    (
        MESSAGES,
        messages(said("user", []), said("assistant", "a")),
        "messages.0: all messages must have non-empty content",
    ),
    (MESSAGES, messages(HELLO, system=""), "system: text content blocks must be non-empty"),
    (
        MESSAGES,
        messages(said("user", [text(str(at), **MARK) for at in range(4)]), system=[text("s", **MARK)]),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (MESSAGES, messages(HELLO, store=False), "store: Extra inputs are not permitted"),
    (MESSAGES, messages(said("user", [text("a", note="b")])), "messages.0.content.0.text.note: Extra inputs are not"),
    (
        MESSAGES,
        messages(said("user", [{"type": "image", "source": SOURCE}]), model="claude-2.1"),
        "'claude-2.1' does not support image input.",
    ),
    (MESSAGES, {"model": "m", "messages": [HELLO]}, "max_tokens: Field required"),
    (MESSAGES, messages(HELLO, said("assistant", "a ")), "final assistant content cannot end with trailing whitespace"),
]


@pytest.mark.parametrize(("path", "body", "message"), REFUSED)
def test_refused(path: str, body: Json, message: str) -> None:
    found = refusal(path, body)
    assert isinstance(found, Refused)
    assert message in found.message
    assert found.body["error"]["type"] == "invalid_request_error"
    assert found.status == (404 if "not persisted" in message else 400)
