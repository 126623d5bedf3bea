"""Connections to MCP servers by streamable HTTP, and by stdio to a server in the sandbox.

The SDK speaks HTTP. This bounds what the SDK does not: addresses, origins, compression, and the size and the time of
responses."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import anyio
import httpcore2
import httpx2
import mcp_types as types
import msgspec
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.streamable_http import LAST_EVENT_ID, MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage

from quarterdeck import __version__
from quarterdeck.connections.credentials import redaction
from quarterdeck.connections.credentials.model import MIN_SECRET_CHARACTERS, Authorization, AuthorizationError
from quarterdeck.connections.mcp.answers import clean_line
from quarterdeck.connections.mcp.guarded_streams import (
    PIECE_BYTES,
    TOO_EXPENSIVE,
    DecodingCost,
    GuardedStreams,
    Problem,
    decodes_quickly,
    guarded,
)
from quarterdeck.connections.mcp.model import McpFailure, McpTarget, StdioCommand
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings
from quarterdeck.outbound.http_client import NETWORK_ERRORS, OutboundClient, UnreachableError
from quarterdeck.outbound.rules import read_url
from quarterdeck.sandbox.adapter import ErrorTail, Pipes, Sandbox, Service
from quarterdeck.sandbox.model import SandboxUnavailable

# Calls of one answer that run at the same time, and what the SDK sends beside them.
_CONNECTIONS = 20
_REDIRECTS = 5
# A server may end the stream of a call and ask the client to connect again, without a pause.
_RESUME_SECONDS = 1.0
_ERROR_BYTES = 64 * 1024


@asynccontextmanager
async def connect_http(
    outbound: OutboundClient, target: McpTarget, settings: McpSettings, problem: Problem
) -> AsyncIterator[GuardedStreams]:
    assert target.url is not None
    try:
        address = read_url(target.url, outbound.policy)
    except ServiceError as fault:
        # The settings changed after the URL was stored.
        raise problem.found(fault.message) from None
    connections = await outbound.connections(
        target.workspace_id, address, limit=_CONNECTIONS, idle_seconds=settings.idle_seconds
    )
    url = f"{address.scheme}://{address.authority}{address.path}"
    client = httpx2.AsyncClient(
        transport=_BoundedTransport(connections, httpx2.URL(url), target.authorization, settings, problem),
        trust_env=False,
        max_redirects=_REDIRECTS,
        timeout=httpx2.Timeout(settings.connect_seconds, read=settings.call_seconds),
        # Compression is refused: a small response could become a large one.
        headers={"User-Agent": f"Quarterdeck/{__version__}", "Accept-Encoding": "identity"},
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=settings.message_bytes) as (reader, writer),
    ):
        yield guarded(reader, writer, problem)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(
        self,
        connections: httpcore2.AsyncConnectionPool,
        url: httpx2.URL,
        authorization: Authorization | None,
        settings: McpSettings,
        problem: Problem,
    ) -> None:
        self._connections = connections
        self._origin = _origin(url)
        self._authorization = authorization
        self._settings = settings
        self._problem = problem
        self._has_listened = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != self._origin:
            raise self._problem.found("The server redirects to another origin.")
        problem, seconds = self._problem, self._settings.connect_seconds + self._settings.call_seconds
        if request.method == "GET":
            if self._has_listened or LAST_EVENT_ID in request.headers:
                await asyncio.sleep(_RESUME_SECONDS)
            if LAST_EVENT_ID not in request.headers:
                # The stream for messages outside of calls. Servers need not offer it. Without it, a server that asks
                # for input there during a call would wait for the answer.
                self._has_listened = True
                request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}
                problem, seconds = Problem(), math.inf
        try:
            response = await self._exchange(request)
            try:
                return await self._checked(request, response, problem, seconds)
            except BaseException:
                await response.aclose()
                raise
        except AuthorizationError as fault:
            raise problem.found(str(fault)) from None
        except UnreachableError as fault:
            log.info("an MCP server is unreachable", extra=fields(detail=fault.detail))
            raise problem.found(str(fault)) from None
        except httpcore2.TimeoutException as fault:
            raise problem.found("The connection to the server timed out.") from fault
        except NETWORK_ERRORS as fault:
            raise problem.found("The connection to the server failed.") from fault

    async def _exchange(self, request: httpx2.Request) -> httpcore2.Response:
        if self._authorization is None:
            return await self._send(request, {})
        authorization = await self._authorization.headers()
        response = await self._send(request, authorization)
        if response.status == HTTPStatus.UNAUTHORIZED and await self._authorization.renew(authorization):
            await response.aclose()
            response = await self._send(request, await self._authorization.headers())
        return response

    async def _send(self, request: httpx2.Request, authorization: dict[str, str]) -> httpcore2.Response:
        headers = httpx2.Headers(request.headers)
        headers.update(authorization)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        return await self._connections.handle_async_request(
            httpcore2.Request(
                request.method, url, headers=headers.raw, content=request.stream, extensions=request.extensions
            )
        )

    async def _checked(
        self, request: httpx2.Request, response: httpcore2.Response, problem: Problem, seconds: float
    ) -> httpx2.Response:
        """`seconds`: the caller waits no longer. A response that it no longer waits for ends by this."""
        headers = httpx2.Headers(response.headers)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise problem.found("The server sent a compressed response.")
        is_redirect = HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST
        if is_redirect and "location" in headers and not self._is_own(request.url, headers["location"]):
            raise problem.found("The server redirects to another origin.")
        # As the SDK recognises them.
        is_event_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
        cost = DecodingCost(is_event_stream=is_event_stream)
        stream = _BoundedStream(response, self._settings.message_bytes, seconds, problem, cost)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > stream.max_bytes:
            raise stream.too_long()
        if response.status < HTTPStatus.BAD_REQUEST or request.method == "DELETE":
            return httpx2.Response(response.status, headers=headers, stream=stream, extensions=response.extensions)
        body = await stream.start()
        await response.aclose()
        if not _is_protocol_error(body):
            problem.is_lost_session = response.status == HTTPStatus.NOT_FOUND and MCP_SESSION_ID in request.headers
            problem.found(f"The server answered with the HTTP status {response.status}.")
        return httpx2.Response(response.status, headers=headers, content=body)

    def _is_own(self, url: httpx2.URL, location: str) -> bool:
        try:
            return _origin(url.join(location)) == self._origin
        except (httpx2.InvalidURL, ValueError):
            return False

    async def aclose(self) -> None:
        await self._connections.aclose()


def _origin(url: httpx2.URL) -> tuple[str, bytes, int | None]:
    """The library writes hosts in lower case, and the usual port as None."""
    return url.scheme, url.raw_host, url.port


class _BoundedStream(httpx2.AsyncByteStream):
    """One deadline and one number of bytes for a whole response, also for one that streams."""

    def __init__(
        self, response: httpcore2.Response, max_bytes: int, seconds: float, problem: Problem, cost: DecodingCost
    ) -> None:
        self._response = response
        self._problem = problem
        self._cost = cost
        self.max_bytes = max_bytes
        self._seconds = seconds

    def too_long(self) -> McpFailure:
        return self._problem.found(f"The server sent more than {self.max_bytes} bytes in one response.")

    async def start(self) -> bytes:
        """Of an error. The rest does not matter."""
        data = b""
        async for part in self:
            data += part
            if len(data) >= _ERROR_BYTES:
                break
        return data[:_ERROR_BYTES]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        deadline = asyncio.get_running_loop().time() + self._seconds
        received = 0
        parts = aiter(self._response.aiter_stream())
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    part = await anext(parts, None)
            except TimeoutError:
                raise self._problem.found("The response of the server did not end in time.") from None
            except NETWORK_ERRORS as fault:
                raise self._problem.found("The connection to the server broke.") from fault
            if part is None:
                return
            received += len(part)
            if received > self.max_bytes:
                raise self.too_long()
            for start in range(0, len(part), PIECE_BYTES):
                piece = part[start : start + PIECE_BYTES]
                if self._cost.exceeds(piece):
                    raise self._problem.found(TOO_EXPENSIVE)
                await asyncio.sleep(0)
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


def _is_protocol_error(body: bytes) -> bool:
    """Servers may send the error of a request with a status such as 400."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(found, dict) and "jsonrpc" in found and "error" in found


# stdio to a server in the sandbox. Messages are lines of JSON.

# Lines that are no messages. Some servers print a few.
_INVALID_LINES = 100
_ERROR_CHARACTERS = 300


@asynccontextmanager
async def connect_stdio(
    sandbox: Sandbox, command: StdioCommand, target: McpTarget, settings: McpSettings, problem: Problem
) -> AsyncIterator[GuardedStreams]:
    errors = ErrorTail()
    service = Service(
        workspace_id=target.workspace_id,
        arguments=command.command,
        environment=command.environment,
        network=command.network,
        readable=[Path(folder) for folder in command.readable],
        errors=errors,
        buffer_bytes=settings.message_bytes,
    )
    redact = _redactor(command)

    def last_error() -> str:
        # Redacted first: a part of a secret would not be found.
        return redact(clean_line(redact(errors.last_line()), _ERROR_CHARACTERS))

    try:
        async with sandbox.serve(service) as pipes:
            yield guarded(_LineReader(pipes, settings.message_bytes, problem, last_error), _LineWriter(pipes), problem)
    except SandboxUnavailable as fault:
        raise problem.found(f"The server could not be started: {fault}") from fault


class _LineReader(ObjectReceiveStream[SessionMessage]):
    def __init__(self, pipes: Pipes, max_bytes: int, problem: Problem, last_error: Callable[[], str]) -> None:
        self._stdout = pipes.stdout
        self._max_bytes = max_bytes
        self._problem = problem
        self._last_error = last_error
        self._invalid_lines = 0
        # Since the last answer.
        self._received = 0

    async def receive(self) -> SessionMessage:
        while self._invalid_lines <= _INVALID_LINES:
            line = await self._line()
            self._received += len(line)
            if self._received > self._max_bytes:
                raise self._problem.found(f"The server sent more than {self._max_bytes} bytes without an answer.")
            if not await asyncio.to_thread(decodes_quickly, line):
                raise self._problem.found(TOO_EXPENSIVE)
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._invalid_lines += 1
                continue
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                self._received = 0
            return SessionMessage(message)
        raise self._problem.found("The server sent too many lines that are not messages.")

    async def _line(self) -> bytes:
        try:
            line = await self._stdout.readline()
        except ValueError:
            raise self._problem.found(f"The server sent a message of more than {self._max_bytes} bytes.") from None
        except OSError:
            line = b""
        if not line:
            reason = self._last_error()
            self._problem.found(f"The server ended: {reason}" if reason else "The server ended.")
            raise anyio.EndOfStream
        return line

    async def aclose(self) -> None:
        """The sandbox ends the pipes."""


class _LineWriter(ObjectSendStream[SessionMessage]):
    def __init__(self, pipes: Pipes) -> None:
        self._stdin = pipes.stdin

    async def send(self, item: SessionMessage) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._stdin.write(text.encode() + b"\n")
            await self._stdin.drain()
        except OSError:
            # The reader sees the end of the server too, and says why.
            return

    async def aclose(self) -> None:
        """The sandbox ends the pipes."""


def _redactor(command: StdioCommand) -> Callable[[str], str]:
    """For messages about the server: the environment may hold secrets of the operator."""
    forms: set[str] = set()
    for value in command.environment.values():
        if len(value) >= MIN_SECRET_CHARACTERS:
            forms |= redaction.forms(value)
    return lambda text: redaction.redact(text, forms)
