"""Between a transport of the SDK and its client: keeps from the client what a server may not flood it with."""

from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage

from quarterdeck.connections.mcp.model import McpFailure
from quarterdeck.connections.mcp.value_limits import has_too_many_items

# Requests of a server that have no answer yet. The client refuses each, but its answers wait for a server that does not
# read them.
_OPEN_REQUESTS = 16
TOO_EXPENSIVE = "The server sent a message with too many values or too much text."


class Problem:
    """Why a connection became unusable: the errors of the SDK do not carry the reason. The first counts."""

    def __init__(self) -> None:
        self.text: str | None = None
        # The server has forgotten the MCP session, so it has not looked at the request.
        self.is_lost_session = False

    def found(self, text: str) -> McpFailure:
        self.text = self.text or text
        return McpFailure(text)


def guarded(streams: TransportStreams, problem: Problem) -> TransportStreams:
    open_requests = _OpenRequests(problem)
    return _Reader(streams[0], open_requests, problem), _Writer(streams[1], open_requests)


class _OpenRequests:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._number = 0

    def add(self) -> None:
        self._number += 1
        if self._number > _OPEN_REQUESTS:
            raise self._problem.found("The server sent too many requests.")

    def remove(self) -> None:
        self._number -= 1


class _Reader:
    """Without notifications: progress, logs and changes of lists are not used. Requests reach the client, which refuses
    them (sampling, elicitation, roots) or answers (ping)."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], open_requests: _OpenRequests, problem: Problem
    ) -> None:
        self._stream = stream
        self._open_requests = open_requests
        self._problem = problem

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.receive()
            if isinstance(item, SessionMessage):
                if isinstance(item.message, types.JSONRPCNotification):
                    continue
                if has_too_many_items(item.message):
                    raise self._problem.found(TOO_EXPENSIVE)
                if isinstance(item.message, types.JSONRPCResponse):
                    _remove_output_schemas(item.message.result)
                if isinstance(item.message, types.JSONRPCRequest):
                    self._open_requests.add()
            return item

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, fault, trace)


class _Writer:
    def __init__(self, stream: WriteStream[SessionMessage], open_requests: _OpenRequests) -> None:
        self._stream = stream
        self._open_requests = open_requests

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._open_requests.remove()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, fault, trace)


def _remove_output_schemas(result: dict[str, Any]) -> None:
    """The client would check results against them, and their patterns may take forever."""
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
