"""One connection to an MCP server, held open by a task of its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import mcp_types as types
from mcp.client import Client, Transport
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from quarterdeck import __version__
from quarterdeck.connections.mcp.answers import clean_line, clean_start, read_tools, to_result
from quarterdeck.connections.mcp.guarded_streams import Problem
from quarterdeck.connections.mcp.model import KEY_META, McpFailure, McpResult, McpTarget, McpTool
from quarterdeck.core.logging import log
from quarterdeck.core.settings import McpSettings

# `auto` asks for the newest protocol first. Over HTTP a server that does not know it answers with an error. Over stdio
# some servers end after a request that they do not know.
Mode = Literal["auto", "legacy"]

# Errors that the SDK makes up when there is no answer.
_NO_ANSWER = frozenset({types.CONNECTION_CLOSED, types.PARSE_ERROR, types.REQUEST_TIMEOUT})
# What the SDK answers a server that asks for input, and raises if the request for input came as the result.
_REFUSALS = frozenset({"Elicitation not supported", "Sampling not supported", "List roots not supported"})
_CLOSE_SECONDS = 5.0
_ERROR_CHARACTERS = 500
_SENT = "The call may have taken effect."

# They log what servers send, without a bound. Failures reach the log of the run.
for _name in ("mcp.client", "mcp.shared", "client"):
    logging.getLogger(_name).propagate = False
    logging.getLogger(_name).addHandler(logging.NullHandler())

# The SDK formats every message of an event stream for its debug log, also if nobody reads it: 50 ms for an image.
types.JSONRPCResponse.__str__ = object.__repr__  # type: ignore[method-assign]

OpenTransport = Callable[[Problem], Transport]
_Answer = TypeVar("_Answer")


class LostSession(McpFailure):
    """The server has forgotten the MCP session, so the request had no effect and can be repeated."""


class McpConnection:
    def __init__(
        self, target: McpTarget, settings: McpSettings, result_characters: int, transport: OpenTransport, mode: Mode
    ) -> None:
        self.target = target
        # Requests that use it at the moment.
        self.users = 0
        # Closes it, unless it is used again before.
        self.idle_timer: asyncio.TimerHandle | None = None
        self._settings = settings
        self._result_characters = result_characters
        self._problem = Problem()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # Otherwise asyncio reports a failure that nobody waited for.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._stop = asyncio.Event()
        # The SDK needs the list for calls: arguments that a schema marks with `x-mcp-header` are also sent as headers.
        self._is_listed = False
        self._task = asyncio.create_task(self._run(transport, mode))

    def begin_use(self) -> None:
        self.users += 1
        self.stop_timer()

    def stop_timer(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    @property
    def is_broken(self) -> bool:
        return self._problem.text is not None or self._stop.is_set() or self._task.done()

    async def _run(self, transport: OpenTransport, mode: Mode) -> None:
        """The scopes of the SDK must be entered and left in one task."""
        try:
            info = types.Implementation(name="quarterdeck", version=__version__)
            client = Client(transport(self._problem), mode=mode, client_info=info, cache=None)
            async with client:
                # A server that does not know the newest protocol answers with an error status first.
                self._problem.text = None
                self._ready.set_result(client)
                await self._stop.wait()
        except Exception as fault:
            self._problem.found(_reason(fault))
        finally:
            if not self._ready.done():
                self._ready.set_exception(
                    McpFailure(self._redacted(self._problem.text or "The connection was closed."))
                )

    async def connected(self) -> None:
        """Raises McpFailure."""
        try:
            async with asyncio.timeout(self._settings.connect_seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._stop.set()
            self._task.cancel()
            seconds = self._settings.connect_seconds
            raise McpFailure(
                self._redacted(self._problem.text or f"No connection within {seconds:g} seconds.")
            ) from None

    async def list_tools(self) -> list[McpTool]:
        client = await self._ready
        listing = read_tools(client, self.target.name, self._settings, self._redact)
        tools = await self._answer(listing, self._settings.connect_seconds, "")
        self._is_listed = True
        return tools

    async def call(self, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        if not self._is_listed:
            await self.list_tools()
        return await self._answer(self._call(tool, arguments, key), self._settings.call_seconds, f" {_SENT}")

    async def _call(self, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        client = await self._ready
        meta: Any = {KEY_META: key}
        try:
            found = await client.call_tool(tool, arguments, meta=meta)
        except MCPError as fault:
            if fault.code in _NO_ANSWER or self._problem.text is not None:
                raise
            if fault.message in _REFUSALS:
                return McpResult(text="The server asked for input, which is not supported.", is_error=True)
            return McpResult(text=self._error(fault), is_error=True)
        return await asyncio.to_thread(
            to_result, found, self._settings.image_bytes, self._result_characters, self._redact
        )

    async def _answer(self, request: Awaitable[_Answer], seconds: float, note: str) -> _Answer:
        """Raises McpFailure. A connection on which a request failed is not used again."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            text = f"The server did not answer within {seconds:g} seconds."
            raise self._failure(text, note) from None
        except MCPError as fault:
            # The task may not have stored the reason yet.
            await asyncio.wait([self._task], timeout=0 if self._problem.text else 0.1)
            raise self._failure(self._error(fault), note) from None
        except ValidationError:
            # Without the cause: it describes every invalid value.
            raise self._failure("The server sent an invalid answer.", note) from None
        except McpFailure:
            raise
        except Exception as fault:
            # Such as numbers that cannot be stored. A server must not be able to end an attempt.
            log.error("the answer of an MCP server could not be read", exc_info=fault)
            raise self._failure("The answer of the server could not be read.", note) from None

    def _failure(self, text: str, note: str) -> McpFailure:
        if self._problem.is_lost_session:
            return LostSession("The server has closed the session.")
        self._problem.found(text)
        assert self._problem.text is not None
        return McpFailure(self._redacted(self._problem.text) + note)

    def _error(self, fault: MCPError) -> str:
        return f"The server answered with an error: {self._redacted(fault.message)}"

    def _redact(self, text: str) -> str:
        authorization = self.target.authorization
        return text if authorization is None else authorization.redact(text)

    def _redacted(self, text: str) -> str:
        line = clean_line(clean_start(text, 4 * _ERROR_CHARACTERS, self._redact), _ERROR_CHARACTERS)
        # Joining the words may form a secret.
        return self._redact(line)

    async def close(self) -> None:
        """Ends the process of the server, or its MCP session."""
        self._stop.set()
        await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.wait([self._task])


def _reason(fault: BaseException) -> str:
    """Of a connection that could not be opened, or that ended by itself."""
    if isinstance(fault, BaseExceptionGroup):
        return _reason(fault.exceptions[0])
    if isinstance(fault, McpFailure):
        return str(fault)
    if isinstance(fault, MCPError):
        return f"The server answered with an error: {fault.message}"
    if isinstance(fault, ValidationError):
        return "The server sent an invalid answer."
    log.error("a connection to an MCP server failed", exc_info=fault)
    return "The connection failed."
