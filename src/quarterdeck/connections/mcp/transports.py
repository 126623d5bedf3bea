"""Connections to MCP servers by streamable HTTP, and by stdio to a server in the sandbox.

The SDK speaks HTTP. This bounds what the SDK does not: addresses, origins, compression, and the size and the time of
responses."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from uuid import UUID

import anyio
import httpcore2
import httpx2
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
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
from quarterdeck.connections.mcp.model import StdioCommand
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings
from quarterdeck.outbound.network_backend import CheckedBackend, UnreachableError
from quarterdeck.outbound.resolver import ResolveFor
from quarterdeck.outbound.rules import AddressPolicy, OutboundTarget, read_url
from quarterdeck.sandbox.adapter import ErrorTail, Pipes, Sandbox, Service
from quarterdeck.sandbox.model import SandboxUnavailable

# Calls of one answer that run at the same time, and what the SDK sends beside them.
_CONNECTIONS = 20
_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
# A server may end the stream of a call and ask the client to connect again, without a pause.
_RESUME_SECONDS = 1.0
_ERROR_BYTES = 64 * 1024


class HttpConnector:
    """What the HTTP connections of a process share."""

    def __init__(self, settings: McpSettings, resolve_for: ResolveFor, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._policy = AddressPolicy(exceptions=settings.allowed_addresses)
        self._resolve_for = resolve_for
        self._tls = tls

    @asynccontextmanager
    async def connect(
        self, workspace_id: UUID, url: str, authorization: Authorization | None, problem: Problem
    ) -> AsyncIterator[GuardedStreams]:
        try:
            target = read_url(url, self._policy)
        except ServiceError as fault:
            # The settings changed after the URL was stored.
            raise problem.found(fault.message) from None
        if self._tls is None and target.scheme == "https":
            # Loading the CA certificates is slow.
            self._tls = await asyncio.to_thread(httpcore2.default_ssl_context)
        backend = CheckedBackend(
            self._policy, self._resolve_for(workspace_id), timeout_seconds=self._settings.connect_seconds
        )
        transport = _BoundedTransport(target, authorization, self._settings, problem, backend, self._tls)
        client = httpx2.AsyncClient(
            transport=transport,
            trust_env=False,
            max_redirects=_REDIRECTS,
            timeout=httpx2.Timeout(self._settings.connect_seconds, read=self._settings.call_seconds),
            headers={"User-Agent": f"Quarterdeck/{__version__}"},
        )
        async with (
            client,
            streamable_http_client(
                f"{target.scheme}://{target.authority}{target.path}",
                http_client=client,
                max_sse_event_size=self._settings.message_bytes,
            ) as (reader, writer),
        ):
            yield guarded(reader, writer, problem)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(
        self,
        target: OutboundTarget,
        authorization: Authorization | None,
        settings: McpSettings,
        problem: Problem,
        backend: CheckedBackend,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._origin = (target.scheme, target.host, target.port)
        self._authorization = authorization
        self._settings = settings
        self._problem = problem
        self._has_listened = False
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=_CONNECTIONS,
            keepalive_expiry=settings.idle_seconds,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._origin_of(request.url) != self._origin:
            raise self._problem.found("The server redirects to another origin.")
        problem = self._problem
        if request.method == "GET":
            if self._has_listened or LAST_EVENT_ID in request.headers:
                await asyncio.sleep(_RESUME_SECONDS)
            if LAST_EVENT_ID not in request.headers:
                # The stream for messages outside of calls. Servers need not offer it. Without it, a server that asks
                # for input there during a call would wait for the answer.
                self._has_listened = True
                request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}
                problem = Problem()
        try:
            return await self._exchange(request, problem)
        except AuthorizationError as fault:
            raise problem.found(str(fault)) from None
        except UnreachableError as fault:
            log.info("an MCP server is unreachable", extra=fields(detail=fault.detail))
            raise problem.found(str(fault)) from None
        except httpcore2.TimeoutException as fault:
            raise problem.found("The connection to the server timed out.") from fault
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as fault:
            raise problem.found("The connection to the server failed.") from fault

    async def _exchange(self, request: httpx2.Request, problem: Problem) -> httpx2.Response:
        authorization = await self._authorization.headers() if self._authorization else {}
        response = await self._send(request, authorization)
        if (
            response.status == HTTPStatus.UNAUTHORIZED
            and self._authorization
            and await self._authorization.renew(authorization)
        ):
            await response.aclose()
            response = await self._send(request, await self._authorization.headers())
        try:
            return await self._checked(request, response, problem)
        except BaseException:
            await response.aclose()
            raise

    async def _send(self, request: httpx2.Request, authorization: dict[str, str]) -> httpcore2.Response:
        headers = httpx2.Headers(request.headers)
        # Compression is refused: a small response could become a large one.
        headers["Accept-Encoding"] = "identity"
        headers.update(authorization)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        return await self._pool.handle_async_request(
            httpcore2.Request(
                request.method, url, headers=headers.raw, content=request.stream, extensions=request.extensions
            )
        )

    async def _checked(
        self, request: httpx2.Request, response: httpcore2.Response, problem: Problem
    ) -> httpx2.Response:
        headers = httpx2.Headers(response.headers)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise problem.found("The server sent a compressed response.")
        location = (
            headers.get("location") if HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST else None
        )
        if location is not None and not self._is_own(request.url, location):
            raise problem.found("The server redirects to another origin.")
        # As the SDK recognises them.
        is_event_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
        cost = DecodingCost(is_event_stream=is_event_stream)
        # The caller waits no longer. A response that it no longer waits for ends by this.
        seconds = self._settings.connect_seconds + self._settings.call_seconds
        if problem is not self._problem:
            seconds = math.inf
        stream = _BoundedStream(response, self._settings.message_bytes, seconds, problem, cost)
        if (
            headers.get("content-length", "0").isdecimal()
            and int(headers.get("content-length", "0")) > stream.max_bytes
        ):
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
            return self._origin_of(url.join(location)) == self._origin
        except (httpx2.InvalidURL, ValueError):
            return False

    def _origin_of(self, url: httpx2.URL) -> tuple[str, str, int]:
        port = url.port or _PORTS.get(url.scheme, 0)
        return url.scheme, url.raw_host.decode("ascii", "replace").strip("[]").lower(), port

    async def aclose(self) -> None:
        await self._pool.aclose()


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

    def too_long(self) -> Exception:
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
            except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as fault:
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
    sandbox: Sandbox, workspace_id: UUID, command: StdioCommand, settings: McpSettings, problem: Problem
) -> AsyncIterator[GuardedStreams]:
    errors = ErrorTail()
    service = Service(
        workspace_id=workspace_id,
        arguments=command.command,
        environment=command.environment,
        network=command.network,
        readable=[Path(folder) for folder in command.readable],
        errors=errors,
        buffer_bytes=settings.message_bytes,
    )
    try:
        async with (
            sandbox.serve(service) as pipes,
            _streams(_Lines(pipes, settings, problem, errors, command)) as (reader, writer),
        ):
            yield guarded(reader, writer, problem)
    except SandboxUnavailable as fault:
        raise problem.found(f"The server could not be started: {fault}") from fault


@asynccontextmanager
async def _streams(
    lines: "_Lines",
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    incoming, reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    async with incoming, reader, writer, outgoing, anyio.create_task_group() as group:
        group.start_soon(lines.read, incoming)
        group.start_soon(lines.write, outgoing)
        try:
            yield reader, writer
        finally:
            group.cancel_scope.cancel()


class _Lines:
    def __init__(
        self, pipes: Pipes, settings: McpSettings, problem: Problem, errors: ErrorTail, command: StdioCommand
    ) -> None:
        self._pipes = pipes
        self._max_bytes = settings.message_bytes
        self._problem = problem
        self._errors = errors
        self._redact = _redactor(command)

    async def read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        invalid_lines = 0
        # Since the last answer.
        received = 0
        async with incoming:
            while invalid_lines <= _INVALID_LINES:
                line = await self._line()
                if line is None:
                    return
                received += len(line)
                if received > self._max_bytes:
                    self._problem.found(f"The server sent more than {self._max_bytes} bytes without an answer.")
                    return
                if not await asyncio.to_thread(decodes_quickly, line):
                    self._problem.found(TOO_EXPENSIVE)
                    return
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    invalid_lines += 1
                    continue
                if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    received = 0
                try:
                    await incoming.send(SessionMessage(message))
                except anyio.BrokenResourceError:
                    return
            self._problem.found("The server sent too many lines that are not messages.")

    async def _line(self) -> bytes | None:
        """None at the end, and if a line is too long."""
        try:
            line = await self._pipes.stdout.readline()
        except ValueError:
            self._problem.found(f"The server sent a message of more than {self._max_bytes} bytes.")
            return None
        except OSError:
            line = b""
        if not line:
            # Redacted first: a part of a secret would not be found.
            reason = self._redact(clean_line(self._redact(self._errors.last_line()), _ERROR_CHARACTERS))
            self._problem.found(f"The server ended: {reason}" if reason else "The server ended.")
            return None
        return line

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._pipes.stdin.write(text.encode() + b"\n")
                await self._pipes.stdin.drain()
        except OSError:
            # The reader sees the end of the server too, and says why.
            return


def _redactor(command: StdioCommand) -> Callable[[str], str]:
    """For messages about the server: the environment may hold secrets of the operator."""
    forms: set[str] = set()
    for value in command.environment.values():
        if len(value) >= MIN_SECRET_CHARACTERS:
            forms |= redaction.forms(value)
    return lambda text: redaction.redact(text, forms)
