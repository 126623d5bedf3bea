"""Calls of our own API inside the process: through the whole app, with the credential and the address of the caller, so
that permissions, limits and the order of checks are those of the API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The caller's headers that count. Forwarded addresses: the audit log names the client.
_KEPT_HEADERS = frozenset({b"authorization", b"host", b"quarterdeck-client", b"service-workspace", b"x-forwarded-for"})
_KEPT_FIELDS = ("type", "asgi", "http_version", "scheme", "client", "server", "state")
_QUEUED_CHUNKS = 16

Json = Any
Query = dict[str, str]


class ApiAnswer(Struct, frozen=True):
    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def json(self) -> Json:
        return msgspec.json.decode(self.content)


class OwnApiError(Exception):
    """The API refused. The text is its message."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(answer.json["error"]["message"])
        self.status = answer.status


class StreamRefused(Exception):
    """The API gave no event stream."""


class OwnApi:
    def __init__(self, app: ASGIApp, caller: Scope) -> None:
        self._app = app
        self._scope = {field: caller[field] for field in _KEPT_FIELDS if field in caller}
        self._headers = [(name, value) for name, value in caller["headers"] if name in _KEPT_HEADERS]

    async def get(self, path: str, **query: object) -> Json:
        return await self._json("GET", path, query)

    async def post(self, path: str, body: object, idempotency_key: str | None = None) -> Json:
        return await self._json("POST", path, {}, body, idempotency_key)

    async def request(
        self,
        method: str,
        path: str,
        query: dict[str, object] | None = None,
        body: object = None,
        idempotency_key: str | None = None,
    ) -> ApiAnswer:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = [(b"content-length", str(len(content)).encode())]
        if body is not None:
            headers.append((b"content-type", b"application/json"))
        if idempotency_key is not None:
            headers.append((b"idempotency-key", idempotency_key.encode()))
        status, answered, pieces = 0, [], []

        async def send(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], list(message["headers"])
            else:
                pieces.append(message.get("body", b""))

        await self._app(self._scope_of(method, path, query or {}, headers), _receiving(content), send)
        return ApiAnswer(status, answered, b"".join(pieces))

    @asynccontextmanager
    async def events(self, session_id: str, after: int) -> AsyncIterator[AsyncGenerator[Json, None]]:
        """The events of a session after one of them, as they occur, until the API ends the stream. Reading them raises
        StreamRefused."""
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_CHUNKS)
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status == HTTPStatus.OK:
                await chunks.put(message.get("body", b""))

        path = f"/v1/sessions/{session_id}/events"
        scope = self._scope_of("GET", path, {"after": after}, [(b"accept", b"text/event-stream")])
        stream = asyncio.create_task(_streamed(self._app, scope, send, chunks))
        try:
            async with aclosing(_parsed(chunks, lambda: status)) as parsed:
                yield parsed
        finally:
            stream.cancel()
            with suppress(asyncio.CancelledError):
                await stream

    async def _json(
        self, method: str, path: str, query: dict[str, object], body: object = None, idempotency_key: str | None = None
    ) -> Json:
        answer = await self.request(method, path, query, body, idempotency_key)
        if not answer.ok:
            raise OwnApiError(answer)
        return answer.json

    def _scope_of(
        self, method: str, path: str, query: dict[str, object], headers: list[tuple[bytes, bytes]]
    ) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value is not None}
        return {
            **self._scope,
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(given).encode(),
            "headers": [*self._headers, *headers],
        }


def _receiving(content: bytes) -> Receive:
    """The body, and then no disconnect: whoever no longer needs the answer cancels the call."""
    body = [content]

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    return receive


async def _streamed(app: ASGIApp, scope: Scope, send: Send, chunks: "asyncio.Queue[bytes | None]") -> None:
    await app(scope, _receiving(b""), send)
    await chunks.put(None)


async def _parsed(chunks: "asyncio.Queue[bytes | None]", status: Callable[[], int]) -> AsyncGenerator[Json, None]:
    waiting = b""
    while (chunk := await chunks.get()) is not None:
        *blocks, waiting = (waiting + chunk).split(b"\n\n")
        for block in blocks:
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            # Streamed parts of messages have no id.
            if b"id" in lines and b"data" in lines:
                yield msgspec.json.decode(lines[b"data"])
    if status() != HTTPStatus.OK:
        raise StreamRefused
