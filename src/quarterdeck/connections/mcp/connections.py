"""Open connections to MCP servers. A connection belongs to one session and is kept warm between its runs."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from quarterdeck.connections.mcp.model import CommandsError, McpFailure, McpResult, McpTarget, McpTool, read_commands
from quarterdeck.core.logging import log
from quarterdeck.core.settings import McpSettings
from quarterdeck.outbound.resolver import Resolve, ResolveFor, Resolver
from quarterdeck.sandbox.adapter import Sandbox

if TYPE_CHECKING:
    from quarterdeck.connections.mcp.connection import McpConnection, OpenTransport
    from quarterdeck.connections.mcp.transports import HttpConnector

_RESOLVERS = 4
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
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._sandbox = sandbox
        self._result_characters = result_characters
        self._resolver = Resolver(_RESOLVERS)
        self._resolve_for: ResolveFor = self._resolver.for_workspace if resolve is None else lambda _: resolve
        self._tls = tls
        # In the order of their last use.
        self._entries: dict[_Key, _Entry] = {}
        self._connector: HttpConnector | None = None
        self._is_closed = False
        # Being closed. asyncio keeps no reference to tasks.
        self._closing: set[asyncio.Task[None]] = set()

    async def list_tools(self, target: McpTarget, owner: UUID) -> list[McpTool]:
        """The tools as the server lists them now, bounded and cleaned. Raises McpFailure."""
        return await self._request(target, owner, lambda connection: connection.list_tools())

    async def call(self, target: McpTarget, owner: UUID, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        """Call the tool by the server's name for it. Raises McpFailure, whose text says if the call may have taken
        effect. Cancelling the caller cancels the call at the server."""
        return await self._request(target, owner, lambda connection: connection.call(tool, arguments, key))

    async def close_owner(self, owner: UUID) -> None:
        """Close the connections of one owner, as after a check."""
        await asyncio.gather(*(self._drop(key) for key in list(self._entries) if key[0] == owner))

    async def close(self) -> None:
        """Close all connections and end all their processes."""
        self._is_closed = True
        for key in list(self._entries):
            self._drop(key)
        await asyncio.gather(*self._closing)
        self._resolver.close()

    async def _request(
        self, target: McpTarget, owner: UUID, request: "Callable[[McpConnection], Awaitable[_Answer]]"
    ) -> _Answer:
        # The SDK takes a second to load, and most processes never need it. In a thread, so that heartbeats go on.
        await asyncio.to_thread(_load)
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
        entry = self._entries.pop(key, None)
        if entry is not None and (entry.target.revision != target.revision or entry.connection.is_broken):
            # Others may still wait for an answer. The last of them closes it.
            self._close_unused(entry)
            entry = None
        if entry is None:
            self._make_room(target.workspace_id)
            entry = _Entry(self._open(target), target)
        self._entries[key] = entry
        entry.begin()
        try:
            await entry.connection.connected()
            yield entry.connection
        finally:
            entry.users -= 1
            if entry.connection.is_broken and self._entries.get(key) is entry:
                del self._entries[key]
            if self._entries.get(key) is not entry:
                self._close_unused(entry)
            elif entry.users == 0:
                loop = asyncio.get_running_loop()
                entry.timer = loop.call_later(self._settings.idle_seconds, self._drop, key)

    def _open(self, target: McpTarget) -> "McpConnection":
        """Raises McpFailure if it cannot even be tried. The task of the connection does the rest."""
        from quarterdeck.connections.mcp.connection import McpConnection

        if self._is_closed:
            raise McpFailure("The service is stopping.")
        if target.url is not None:
            transport = partial(self._http().connect, target.workspace_id, target.url, target.authorization)
            return McpConnection(target, self._settings, self._result_characters, transport, "auto")
        return McpConnection(target, self._settings, self._result_characters, self._stdio(target), "legacy")

    def _http(self) -> "HttpConnector":
        from quarterdeck.connections.mcp.transports import HttpConnector

        if self._connector is None:
            self._connector = HttpConnector(self._settings, self._resolve_for, self._tls)
        return self._connector

    def _stdio(self, target: McpTarget) -> "OpenTransport":
        from quarterdeck.connections.mcp.transports import connect_stdio

        if self._sandbox is None:
            raise McpFailure("The server cannot be started: it needs a sandbox, and this process has none.")
        try:
            command = read_commands(self._settings.commands_file).get(target.command or "")
        except CommandsError as fault:
            log.error("the file of MCP commands is unusable: %s", fault)
            raise McpFailure("The operator's file of commands is unusable. The log of the service says why.") from None
        if command is None:
            raise McpFailure(f"The operator's file of commands does not name {target.command!r}.")
        return partial(connect_stdio, self._sandbox, target.workspace_id, command, self._settings)

    def _make_room(self, workspace_id: UUID) -> None:
        """Closes the longest idle connection if all are open: one of the workspace, if it has its share."""
        limit, share = self._settings.connections, self._settings.connections_per_workspace
        own = [key for key, entry in self._entries.items() if entry.target.workspace_id == workspace_id]
        if len(own) < share and len(self._entries) < limit:
            return
        candidates = own if len(own) >= share else self._entries
        idle = next((key for key in candidates if self._entries[key].users == 0), None)
        if idle is None:
            whose = f"{share} connections of a workspace" if len(own) >= share else f"{limit} connections"
            raise McpFailure(f"All {whose} to MCP servers are in use. Try again later.")
        self._drop(idle)

    def _drop(self, key: _Key) -> asyncio.Task[None]:
        return self._close(self._entries.pop(key))

    def _close_unused(self, entry: "_Entry") -> None:
        if entry.users == 0:
            self._close(entry)

    def _close(self, entry: "_Entry") -> asyncio.Task[None]:
        entry.stop_timer()
        task = asyncio.create_task(entry.connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


def _load() -> None:
    for name in ("connection", "transports"):
        import_module(f"quarterdeck.connections.mcp.{name}")


class _Entry:
    def __init__(self, connection: "McpConnection", target: McpTarget) -> None:
        self.connection = connection
        self.target = target
        self.users = 0
        # Closes the connection, unless it is used again before.
        self.timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.users += 1
        self.stop_timer()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
