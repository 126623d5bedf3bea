"""The stand-in for a model. All systems ask it, in OpenAI's form: it sees from outside what each of them runs and when.

A turn carries a mark, `[busy3.7]`: the session's name here and the turn's number in it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import perf_counter

import msgspec
from msgspec import Struct

ANSWER = "Noted."
_MARK = re.compile(r"\[([a-z]+[0-9]+)\.([0-9]+)\]")
_BASE = {"id": "bench", "created": 1, "model": "bench"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}


class Mark(Struct, frozen=True, order=True):
    session: str
    number: int

    def __str__(self) -> str:
        return f"[{self.session}.{self.number}]"


def marks_in(text: str) -> list[Mark]:
    return [Mark(session, int(number)) for session, number in _MARK.findall(text)]


class Call(Struct):
    """One question to the model. Some systems send the conversation, others only what is new."""

    marks: list[Mark]
    began: float
    ended: float | None = None

    @property
    def newest(self) -> Mark:
        return self.marks[-1]


class Model:
    def __init__(self) -> None:
        self.address = ""
        self.calls: list[Call] = []
        # How long it thinks.
        self.seconds = 0.1
        self._waiting: dict[str, asyncio.Event] = {}

    def seen(self) -> set[Mark]:
        return {mark for call in self.calls for mark in call.marks}

    def times_asked(self, mark: Mark) -> int:
        return sum(call.newest == mark for call in self.calls)

    async def until_it_ends(self, session: str, seconds: float) -> None:
        """The next answer to that session, or the time."""
        event = self._waiting.setdefault(session, asyncio.Event())
        event.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    async def answer(self, body: bytes) -> bytes:
        call = Call(marks_in(body.decode()), perf_counter())
        if call.marks:
            self.calls.append(call)
        await asyncio.sleep(self.seconds)
        call.ended = perf_counter()
        if call.marks and (event := self._waiting.get(call.newest.session)):
            event.set()
        return _streamed() if msgspec.json.decode(body).get("stream") else _whole()


@asynccontextmanager
async def standing_in() -> AsyncIterator[Model]:
    model = Model()
    answering: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer_all(model, reader, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    model.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


async def _answer_all(model: Model, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        closing = False
        while not closing:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            closing = b"\r\nconnection: close" in head
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            writer.write(await model.answer(await reader.readexactly(length)))
            await writer.drain()
    writer.close()


def _whole() -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
    body = msgspec.json.encode(_BASE | {"object": "chat.completion", "choices": [choice], "usage": _USAGE})
    return _head("application/json", len(body)) + body


def _streamed() -> bytes:
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ANSWER}, None), ({}, "stop")]
    chunks: list[object] = [[{"index": 0, "delta": delta, "finish_reason": reason}] for delta, reason in deltas]
    events = [_BASE | {"object": "chat.completion.chunk", "choices": choices} for choices in chunks]
    events.append(_BASE | {"object": "chat.completion.chunk", "choices": [], "usage": _USAGE})
    body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    return _head("text/event-stream", len(body)) + body


def _head(media_type: str, length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n".encode()
