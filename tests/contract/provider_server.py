"""A provider that does what a test tells it: OpenAI's chat completions and responses or Anthropic's messages, as they
go over the wire, with the faults that real ones have. Plain asyncio, so that a test can stall or reset a connection at
will.

What real providers refuse, it refuses (tests/strict_provider.py), whatever the test has told it to answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import Struct

from tests.strict_provider import refusal

Event = tuple[str | None, Any]


class Wire(Struct, frozen=True):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Reply = Callable[[Wire], Awaitable[None]]


class Request(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: Any


class Provider:
    """Answers each request with the next of its replies, and remembers what it was asked."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.requests: list[Request] = []
        self.connections: list[asyncio.Task[None]] = []
        self.client_left = asyncio.Event()
        self.url = ""
        self._replies = list(replies)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.create_task(self._serve(Wire(reader, writer))))

    async def _serve(self, wire: Wire) -> None:
        try:
            while not wire.writer.is_closing():
                self.requests.append(await accepted_request(wire))
                await self._replies.pop(0)(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_left.set()
        finally:
            wire.writer.close()


@asynccontextmanager
async def provider(*replies: Reply) -> AsyncIterator[Provider]:
    served = Provider(replies)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        for connection in served.connections:
            connection.cancel()
        await asyncio.gather(*served.connections, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, json.loads(body))


async def accepted_request(wire: Wire) -> Request:
    """The next request that a real provider would answer. Others are refused with its words."""
    while True:
        request = await read_request(wire.reader)
        refused = refusal(request.path, request.body)
        if refused is None:
            return request
        await refuses(refused.status, refused.body)(wire)


# --- what a provider can do ---


def streams(events: Sequence[Event], pause_seconds: float = 0) -> Reply:
    async def reply(wire: Wire) -> None:
        await begin_stream(wire, events, pause_seconds)
        wire.writer.write(b"0\r\n\r\n")
        await wire.writer.drain()

    return reply


def refuses(status: int, body: Any, **headers: str) -> Reply:
    async def reply(wire: Wire) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} No", "content-type: application/json", f"content-length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        wire.writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await wire.writer.drain()

    return reply


def falls_silent(events: Sequence[Event]) -> Reply:
    """After the events: keeps the connection and says nothing more, until the other side leaves."""

    async def reply(wire: Wire) -> None:
        await begin_stream(wire, events)
        await wire.reader.readexactly(1)

    return reply


def resets(events: Sequence[Event]) -> Reply:
    async def reply(wire: Wire) -> None:
        await begin_stream(wire, events)
        await asyncio.sleep(0.02)
        wire.writer.transport.abort()

    return reply


def _sent(event: Event) -> bytes:
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()


async def _send_bytes(wire: Wire, data: bytes) -> None:
    wire.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await wire.writer.drain()


def dribbles(events: Sequence[Event], size: int, pause_seconds: float = 0.002) -> Reply:
    """Packets that end anywhere, also inside of a character."""

    async def reply(wire: Wire) -> None:
        await begin_stream(wire, [])
        data = b"".join(map(_sent, events))
        for at in range(0, len(data), size):
            await _send_bytes(wire, data[at : at + size])
            await asyncio.sleep(pause_seconds)
        wire.writer.write(b"0\r\n\r\n")
        await wire.writer.drain()

    return reply


def halves(events: Sequence[Event], end: Literal["ends", "resets", "falls silent"]) -> Reply:
    """The last event is sent in part."""

    async def reply(wire: Wire) -> None:
        await begin_stream(wire, events[:-1])
        data = _sent(events[-1])
        await _send_bytes(wire, data[: len(data) // 2])
        await asyncio.sleep(0.02)
        match end:
            case "ends":
                wire.writer.write(b"0\r\n\r\n")
                await wire.writer.drain()
            case "resets":
                wire.writer.transport.abort()
            case _:
                await wire.reader.readexactly(1)

    return reply


def does_not_answer() -> Reply:
    async def reply(wire: Wire) -> None:
        await wire.reader.readexactly(1)

    return reply


_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def begin_stream(wire: Wire, events: Sequence[Event], pause_seconds: float = 0) -> None:
    wire.writer.write(_STREAM)
    await send_events(wire, events, pause_seconds)


async def send_events(wire: Wire, events: Sequence[Event], pause_seconds: float = 0) -> None:
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        line = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
        wire.writer.write(f"{len(line.encode()):x}\r\n{line}\r\n".encode())
        await wire.writer.drain()
        # A packet for each, as over a real network.
        await asyncio.sleep(pause_seconds)


# --- what a stream consists of ---


class Dialect(Struct, frozen=True):
    model: str
    path: str
    text: Callable[..., list[Event]]
    calls: Callable[..., list[Event]]
    # How many events at the end of an answer say that it is one.
    closing: int
    error: Callable[[str, str], Any]
    # A text that was cut off at the limit of output tokens.
    cut_off: Callable[..., list[Event]]
    # What must be set so that the model's name leads to this dialect.
    settings: dict[str, Any] = {}


def _chat_chunk(delta: Any, finish_reason: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return None, {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_end(reason: str) -> list[Event]:
    details = {"cached_tokens": 4}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "prompt_tokens_details": details}
    last = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    return [_chat_chunk({}, reason), (None, last), (None, "[DONE]")]


def _chat_text(*pieces: str, reason: str = "stop") -> list[Event]:
    start = _chat_chunk({"role": "assistant", "content": ""})
    return [start, *(_chat_chunk({"content": piece}) for piece in pieces), *_chat_end(reason)]


def _chat_calls(text: str, *calls: tuple[str, str, str]) -> list[Event]:
    events = [_chat_chunk({"role": "assistant", "content": text})]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        start = {"index": index, "id": call_id, "type": "function", "function": function}
        events.append(_chat_chunk({"tool_calls": [start]}))
        for piece in (arguments[:3], arguments[3:]):
            events.append(_chat_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    return [*events, *_chat_end("tool_calls")]


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def _message_start() -> list[Event]:
    # Its input tokens do not include those that were read from the cache.
    usage = {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    return [_event("message_start", message=message | {"stop_sequence": None, "usage": usage})]


def _message_end(reason: str) -> list[Event]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [_event("message_delta", delta=delta, usage={"output_tokens": 7}), _event("message_stop")]


def _text_block(index: int, pieces: Sequence[str]) -> list[Event]:
    deltas = [
        _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece}) for piece in pieces
    ]
    start = _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    return [start, *deltas, _event("content_block_stop", index=index)]


def _messages_text(*pieces: str, reason: str = "end_turn") -> list[Event]:
    return [*_message_start(), _event("ping"), *_text_block(0, pieces), *_message_end(reason)]


def _messages_calls(text: str, *calls: tuple[str, str, str]) -> list[Event]:
    events = [*_message_start(), *_text_block(0, [text])]
    for index, (call_id, name, arguments) in enumerate(calls, 1):
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        events.append(_event("content_block_start", index=index, content_block=block))
        for piece in (arguments[:3], arguments[3:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append(_event("content_block_delta", index=index, delta=delta))
        events.append(_event("content_block_stop", index=index))
    return [*events, *_message_end("tool_use")]


def _thinking_block(thought: str, signature: str) -> list[Event]:
    """Anthropic's thinking comes signed, and must come back as it was."""
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return [
        _event("content_block_start", index=0, content_block=block),
        _event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": thought}),
        _event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": signature}),
        _event("content_block_stop", index=0),
    ]


def thinking(thought: str, signature: str, *pieces: str) -> list[Event]:
    block = _thinking_block(thought, signature)
    return [*_message_start(), *block, *_text_block(1, pieces), *_message_end("end_turn")]


def thinking_calls(thought: str, signature: str, text: str, *calls: tuple[str, str, str]) -> list[Event]:
    start, *rest = _messages_calls(text, *calls)
    moved = [(name, data | ({"index": data["index"] + 1} if "index" in data else {})) for name, data in rest]
    return [start, *_thinking_block(thought, signature), *moved]


def cited(text: str, url: str, title: str) -> list[Event]:
    """An answer of Anthropic's that refers to a page."""
    citation = {"type": "web_search_result_location", "url": url, "title": title, "cited_text": "So."}
    delta = {"type": "citations_delta", "citation": citation | {"encrypted_index": "e"}}
    *before, stop = _text_block(0, [text])
    added = _event("content_block_delta", index=0, delta=delta)
    return [*_message_start(), *before, added, stop, *_message_end("end_turn")]


def cited_in_chat(text: str, url: str, title: str) -> list[Event]:
    start, said, *end = _chat_text(text)
    citation = {"url": url, "title": title, "start_index": 0, "end_index": 1}
    return [start, said, _chat_chunk({"annotations": [{"type": "url_citation", "url_citation": citation}]}), *end]


def thinking_in_chat(thought: str, text: str) -> list[Event]:
    """As DeepSeek and many compatible servers send it."""
    start, *rest = _chat_text(text)
    return [start, *(_chat_chunk({"reasoning_content": piece}) for piece in (thought[:2], thought[2:])), *rest]


def _response(status: str, output: list[Any], reason: str | None = None) -> dict[str, Any]:
    counts = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    details = {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": None if status == "in_progress" else counts | details,
    }


def _responses_stream(items: list[tuple[Any, list[Event]]], reason: str | None) -> list[Event]:
    status = "incomplete" if reason else "completed"
    events = [_event("response.created", response=_response("in_progress", []))]
    for index, (item, deltas) in enumerate(items):
        nothing: dict[str, Any] = {"content": []} if "content" in item else {"arguments": ""}
        empty = item | {"status": "in_progress"} | nothing
        events.append(_event("response.output_item.added", output_index=index, item=empty))
        events += [(name, data | {"output_index": index}) for name, data in deltas]
        events.append(_event("response.output_item.done", output_index=index, item=item))
    events.append(_event(f"response.{status}", response=_response(status, [item for item, _ in items], reason)))
    return [(name, data | {"sequence_number": number}) for number, (name, data) in enumerate(events)]


def _text_item(pieces: Sequence[str]) -> tuple[Any, list[Event]]:
    part = {"type": "output_text", "text": "".join(pieces), "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    position = {"item_id": "msg_1", "content_index": 0}
    added = _event("response.content_part.added", **position, part=part | {"text": ""})
    deltas = [_event("response.output_text.delta", **position, delta=piece, logprobs=[]) for piece in pieces]
    return item, [added, *deltas, _event("response.output_text.done", **position, text=part["text"], logprobs=[])]


def _call_item(call_id: str, name: str, arguments: str) -> tuple[Any, list[Event]]:
    item_id = f"fc_{call_id}"
    item = {"id": item_id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name}
    deltas = [
        _event("response.function_call_arguments.delta", item_id=item_id, delta=piece)
        for piece in (arguments[:3], arguments[3:])
    ]
    done = _event("response.function_call_arguments.done", item_id=item_id, name=name, arguments=arguments)
    return item | {"arguments": arguments}, [*deltas, done]


def _responses_text(*pieces: str, reason: str | None = None) -> list[Event]:
    return _responses_stream([_text_item(pieces)], reason)


def _responses_calls(text: str, *calls: tuple[str, str, str]) -> list[Event]:
    texts = [_text_item([text])] if text else []
    return _responses_stream([*texts, *(_call_item(*call) for call in calls)], None)


def reasoned(thought: str, encrypted: str, text: str, url: str, title: str) -> list[Event]:
    """An answer of OpenAI's responses with a summary of the reasoning, and a page that it refers to."""
    summary = {"type": "summary_text", "text": thought}
    reasoning = {"id": "rs_1", "type": "reasoning", "content": [], "summary": [summary], "encrypted_content": encrypted}
    place = {"item_id": "rs_1", "summary_index": 0}
    thoughts = [
        _event("response.reasoning_summary_part.added", **place, part=summary | {"text": ""}),
        *(_event("response.reasoning_summary_text.delta", **place, delta=one) for one in (thought[:2], thought[2:])),
        _event("response.reasoning_summary_text.done", **place, text=thought),
        _event("response.reasoning_summary_part.done", **place, part=summary),
    ]
    item, deltas = _text_item([text])
    annotation = {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1}
    item["content"][0]["annotations"] = [annotation]
    position = {"item_id": "msg_1", "content_index": 0, "annotation_index": 0}
    deltas.insert(-1, _event("response.output_text.annotation.added", **position, annotation=annotation))
    return _responses_stream([(reasoning, thoughts), (item, deltas)], None)


OPENAI = Dialect(
    "openai:test-model",
    "/v1/chat/completions",
    _chat_text,
    _chat_calls,
    3,
    lambda kind, message: {"error": {"message": message, "type": kind, "code": kind}},
    lambda *pieces: _chat_text(*pieces, reason="length"),
)
RESPONSES = Dialect(
    "openai:gpt-test",
    "/v1/responses",
    _responses_text,
    _responses_calls,
    1,
    OPENAI.error,
    lambda *pieces: _responses_text(*pieces, reason="max_output_tokens"),
    {"openai_api": "responses"},
)
ANTHROPIC = Dialect(
    "anthropic:claude-test",
    "/v1/messages",
    _messages_text,
    _messages_calls,
    2,
    lambda kind, message: {"type": "error", "error": {"type": kind, "message": message}},
    lambda *pieces: _messages_text(*pieces, reason="max_tokens"),
)
GROQ = Dialect(
    "groq:test-model",
    "/openai/v1/chat/completions",
    lambda *pieces: _of_groq(_chat_text(*pieces)),
    lambda text, *calls: _of_groq(_chat_calls(text, *calls)),
    3,
    OPENAI.error,
    lambda *pieces: _of_groq(_chat_text(*pieces, reason="length")),
)


def _of_groq(events: list[Event]) -> list[Event]:
    """Its last chunk has the usage in a field of its own."""
    return [
        (name, data | {"x_groq": {"id": "r", "usage": data["usage"]}} if "usage" in data else data)
        for name, data in events
    ]
