"""A model provider on this machine that speaks OpenAI's chat completions and takes its time: what 200 runs cost shows
only with a provider's library and its connections in the worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import msgspec

ANSWER_SECONDS = 8.0
# Whoever says this gets an answer at once.
QUICKLY = "Quickly."
# Whoever says this gets so many calls of `current_time`, one at a time, and then the answer. At once, too.
STEP_BY_STEP, STEPS = "Step by step.", 20
_PIECES = 16
Pieces = Callable[[], AsyncIterator[str]]
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNK = {"id": "bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}


async def _slowly() -> AsyncIterator[str]:
    for _ in range(_PIECES):
        await asyncio.sleep(ANSWER_SECONDS / _PIECES)
        yield "A piece of the answer. "


@asynccontextmanager
async def provider(pieces: Pieces = _slowly) -> AsyncIterator[str]:
    """Its base URL. `pieces`: of an answer, as they are sent."""
    answering: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer_all(reader, writer, pieces))
        answering.add(task)
        task.add_done_callback(answering.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        # For the connections that are closed with them.
        await asyncio.sleep(0)


async def _answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pieces: Pieces) -> None:
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                calls = _calls_until_now(body) if STEP_BY_STEP.encode() in body else STEPS
                if calls < STEPS:
                    writer.write(_HEAD + _call(f"call_{calls}_{uuid4().hex}") + _end())
                    continue
                quickly = QUICKLY.encode() in body or STEP_BY_STEP.encode() in body
                writer.write(_HEAD + _chunk({"role": "assistant", "content": ""}))
                if quickly:
                    writer.write(_chunk({"content": "The answer."}))
                else:
                    async for piece in pieces():
                        writer.write(_chunk({"content": piece}))
                writer.write(_chunk({}, "stop") + _end())
    finally:
        writer.close()


def _calls_until_now(body: bytes) -> int:
    """By the id of the last call: older ones may have been left out."""
    last = msgspec.json.decode(body)["messages"][-1]
    return int(last["tool_call_id"].split("_")[1]) + 1 if last["role"] == "tool" else 0


def _call(call_id: str) -> bytes:
    function = {"name": "current_time", "arguments": "{}"}
    call = {"index": 0, "id": call_id, "type": "function", "function": function}
    return _chunk({"role": "assistant", "content": "", "tool_calls": [call]}) + _chunk({}, "tool_calls")


def _end() -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    last = _event(msgspec.json.encode(_CHUNK | {"choices": [], "usage": usage}))
    return last + _event(b"[DONE]") + b"0\r\n\r\n"


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _event(msgspec.json.encode(_CHUNK | {"choices": [choice]}))


def _event(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"
