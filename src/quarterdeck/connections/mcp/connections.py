"""Open connections to MCP servers. A connection belongs to one session and is kept warm between its runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from quarterdeck.connections.mcp.model import CommandsError, McpFailure, McpResult, McpTarget, McpTool, read_commands
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings
from quarterdeck.outbound.rules import AddressPolicy
from quarterdeck.sandbox.adapter import Sandbox

if TYPE_CHECKING:
    from quarterdeck.connections.mcp.connection import McpConnection
    from quarterdeck.outbound.http_client import OutboundClient

_Key = tuple[UUID, UUID]
_Answer = TypeVar("_Answer")


class McpConnections:
    """One for a process. Connections are never shared between owners; an owner is a session, or one check."""

    def __init__(
        self,
        settings: McpSettings,
        sandbox: Sandbox | None,
        *,
        result_characters: int = 64 * 1024,
        outbound: "OutboundClient | None" = None,
    ) -> None:
        """`outbound`: None unless a test has its own."""
        self._settings = settings
        self._sandbox = sandbox
        self._result_characters = result_characters
        # In the order of their last use.
        self._open: dict[_Key, McpConnection] = {}
        # Created on first use.
        self._outbound = outbound
        self._is_closed = False
        # Being closed. asyncio keeps no reference to tasks.
        self._closing: set[asyncio.Task[None]] = set()

    async def list_tools(self, target: McpTarget, owner: UUID) -> list[McpTool]:
        """The tools as the server lists them now, bounded and cleaned. Raises McpFailure."""
        try:
            return await self._request(target, owner, lambda connection: connection.list_tools())
        except McpFailure:
            raise
        except Exception as fault:
            # Whatever a server sends, a run goes on without its tools.
            log.warning("listing tools failed", exc_info=fault, extra=fields(server_id=target.server_id))
            raise McpFailure("The tools of the server cannot be listed.") from fault

    async def call(self, target: McpTarget, owner: UUID, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        """Call the tool by the server's name for it. Raises McpFailure, whose text says if the call may have taken
        effect. Cancelling the caller cancels the call at the server."""
        return await self._request(target, owner, lambda connection: connection.call(tool, arguments, key))

    async def close_owner(self, owner: UUID) -> None:
        """Close the connections of one owner, as after a check."""
        await asyncio.gather(*(self._drop(key) for key in list(self._open) if key[0] == owner))

    async def close(self) -> None:
        """Close all connections and end all their processes."""
        self._is_closed = True
        for key in list(self._open):
            self._drop(key)
        await asyncio.gather(*self._closing)
        if self._outbound is not None:
            self._outbound.close()

    async def _request(
        self, target: McpTarget, owner: UUID, request: "Callable[[McpConnection], Awaitable[_Answer]]"
    ) -> _Answer:
        # The SDK takes a second to load, and most processes never need it. In a thread, so that heartbeats go on.
        await asyncio.to_thread(import_module, "quarterdeck.connections.mcp.connection")
        from quarterdeck.connections.mcp.connection import LostSession

        try:
            async with self._used(target, owner) as connection:
                return await request(connection)
        except LostSession:
            # A server that was restarted since the last request. It has not looked at this one.
            async with self._used(target, owner) as connection:
                return await request(connection)

    @asynccontextmanager
    async def _used(self, target: McpTarget, owner: UUID) -> "AsyncIterator[McpConnection]":
        key = (owner, target.server_id)
        connection = self._open.pop(key, None)
        if connection is not None and (connection.target.revision != target.revision or connection.is_broken):
            # Others may still wait for an answer. The last of them closes it.
            self._close_unused(connection)
            connection = None
        if connection is None:
            self._make_room(target.workspace_id)
            connection = self._connect(target)
        self._open[key] = connection
        connection.begin_use()
        try:
            await connection.connected()
            yield connection
        finally:
            connection.users -= 1
            if connection.is_broken and self._open.get(key) is connection:
                del self._open[key]
            if self._open.get(key) is not connection:
                self._close_unused(connection)
            elif connection.users == 0:
                loop = asyncio.get_running_loop()
                connection.idle_timer = loop.call_later(self._settings.idle_seconds, self._drop, key)

    def _connect(self, target: McpTarget) -> "McpConnection":
        """Raises McpFailure if it cannot even be tried. The task of the connection does the rest."""
        from quarterdeck.connections.mcp.connection import McpConnection
        from quarterdeck.connections.mcp.transports import connect_http, connect_stdio

        if self._is_closed:
            raise McpFailure("The service is stopping.")
        settings = self._settings
        if target.url is not None:
            http = partial(connect_http, self._outbound_client(), target, settings)
            return McpConnection(target, settings, self._result_characters, http, "auto")
        if self._sandbox is None:
            raise McpFailure("The server cannot be started: it needs a sandbox, and this process has none.")
        try:
            command = read_commands(settings.commands_file).get(target.command or "")
        except CommandsError as fault:
            log.error("the file of MCP commands is unusable: %s", fault)
            raise McpFailure("The operator's file of commands is unusable. The log of the service says why.") from None
        if command is None:
            raise McpFailure(f"The operator's file of commands does not name {target.command!r}.")
        stdio = partial(connect_stdio, self._sandbox, command, target, settings)
        return McpConnection(target, settings, self._result_characters, stdio, "legacy")

    def _outbound_client(self) -> "OutboundClient":
        from quarterdeck.outbound.http_client import OutboundClient

        if self._outbound is None:
            policy = AddressPolicy(exceptions=self._settings.allowed_addresses)
            self._outbound = OutboundClient(policy, self._settings.connect_seconds)
        return self._outbound

    def _make_room(self, workspace_id: UUID) -> None:
        """Closes the longest idle connection if all are open: one of the workspace, if it has its share."""
        limit, share = self._settings.connections, self._settings.connections_per_workspace
        own = [key for key, connection in self._open.items() if connection.target.workspace_id == workspace_id]
        if len(own) < share and len(self._open) < limit:
            return
        candidates = own if len(own) >= share else self._open
        idle = next((key for key in candidates if self._open[key].users == 0), None)
        if idle is None:
            whose = f"{share} connections of a workspace" if len(own) >= share else f"{limit} connections"
            raise McpFailure(f"All {whose} to MCP servers are in use. Try again later.")
        self._drop(idle)

    def _drop(self, key: _Key) -> asyncio.Task[None]:
        return self._close(self._open.pop(key))

    def _close_unused(self, connection: "McpConnection") -> None:
        if connection.users == 0:
            self._close(connection)

    def _close(self, connection: "McpConnection") -> asyncio.Task[None]:
        connection.stop_timer()
        task = asyncio.create_task(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task
