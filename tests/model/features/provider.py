"""A stand-in for a model provider that holds every request until the test says what the answer is.

Inside the machine it is the transport of OpenAI's client: no network. For printed scripts it is a server of its own,
`python -m tests.model.features.provider --port 9999`, which is told the answers by `POST /answer/0`.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import httpx2
from msgspec import Struct

from quarterdeck.models.context import SUMMARY_INSTRUCTIONS
from tests.contract.provider_server import OPENAI, Event

# The run that a worker's task drives.
driven_run: ContextVar[str] = ContextVar("driven_run", default="")


class Reply(Struct, frozen=True):
    """What the model says. With `status` the provider refuses the request."""

    text: str = ""
    # Id, name and arguments.
    calls: list[tuple[str, str, dict[str, Any]]] = []
    status: int = 200

    def body(self) -> bytes:
        if self.status != 200:
            return json.dumps(OPENAI.error("invalid_request_error", "No such thing.")).encode()
        calls = [(call_id, name, json.dumps(arguments)) for call_id, name, arguments in self.calls]
        events = OPENAI.calls(self.text, *calls) if calls else OPENAI.text(self.text)
        return b"".join(map(_line, events))

    @property
    def content_type(self) -> str:
        return "text/event-stream" if self.status == 200 else "application/json"


def _line(event: Event) -> bytes:
    data = event[1]
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


class Question:
    """One request. It waits until `reply` has a result."""

    def __init__(self, run_id: str, body: dict[str, Any]) -> None:
        self.run_id = run_id
        self.messages: list[dict[str, Any]] = body["messages"]
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Against the promises. Set when the log is read that it must fit to.
        self.is_checked = False

    @property
    def is_summary(self) -> bool:
        return any(one["role"] == "system" and SUMMARY_INSTRUCTIONS in one["content"] for one in self.messages)

    def texts(self, role: str) -> list[str]:
        return [_text(one) for one in self.messages if one["role"] == role]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


class HeldProvider(httpx2.AsyncBaseTransport):
    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.asked: list[Question] = []
        self.waiting: list[Question] = []
        self._on_change = on_change

    async def hold(self, question: Question) -> Reply:
        """The one who asked may leave before the reply comes."""
        self.asked.append(question)
        self.waiting.append(question)
        self._on_change()
        try:
            return await question.reply
        finally:
            if question in self.waiting:
                self.waiting.remove(question)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(b"".join([piece async for piece in _pieces(request)]))
        reply = await self.hold(Question(driven_run.get(), body))
        return httpx2.Response(reply.status, headers={"content-type": reply.content_type}, content=reply.body())

    def question_of(self, run_id: str) -> Question | None:
        return next((one for one in self.waiting if one.run_id == run_id), None)


async def _pieces(request: httpx2.Request) -> AsyncIterator[bytes]:
    assert isinstance(request.stream, httpx2.AsyncByteStream)
    async for piece in request.stream:
        yield piece


# --- as a server, for scripts ---


class _Server:
    """`POST /answer/0` answers the oldest request that waits, and waits for one if there is none. `GET /asked` shows
    the messages of all requests."""

    def __init__(self) -> None:
        self._held = HeldProvider()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                sizes = [line.partition(":")[2] for line in head.lower().split("\r\n") if line.startswith("content-le")]
                content = await reader.readexactly(int(sizes[0]) if sizes else 0)
                status, kind, body = await self._respond(method, path, content)
                top = f"HTTP/1.1 {status} OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(top.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _respond(self, method: str, path: str, content: bytes) -> tuple[int, str, bytes]:
        if path == "/asked":
            shown = [question.messages for question in self._held.asked]
            return 200, "application/json", json.dumps(shown, indent=1, ensure_ascii=False).encode() + b"\n"
        if path.startswith("/answer/"):
            at = int(path.rpartition("/")[2])
            while len(self._held.waiting) <= at:
                await asyncio.sleep(0.02)
            question = self._held.waiting.pop(at)
            question.reply.set_result(Reply(**json.loads(content)))
            return 200, "application/json", b"{}\n"
        reply = await self._held.hold(Question("", json.loads(content)))
        return reply.status, reply.content_type, reply.body()


async def serve(port: int) -> None:
    server = await asyncio.start_server(_Server().serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model provider that is told its answers.")
    parser.add_argument("--port", type=int, default=9999)
    asyncio.run(serve(parser.parse_args().port))
