"""The tools of MCP servers, for the runs of one worker process."""

import asyncio
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.connections.credentials.authorizations import OAuthTokens
from quarterdeck.connections.mcp.connections import McpConnections
from quarterdeck.connections.mcp.model import (
    McpFailure,
    McpResult,
    McpTarget,
    PinnedTool,
    PinnedTools,
    UnavailableServer,
    server_name,
)
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.connections.servers.model import FoundTargets
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import Settings
from quarterdeck.core.text_types import storable
from quarterdeck.db.database import Database
from quarterdeck.runs import calls
from quarterdeck.runs.calls import ListedServer
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, NewImage, Output, Tool, failed_output


def unavailable_instructions(servers: list[UnavailableServer]) -> str:
    """Without the reasons: they may quote the server."""
    return "\n".join(f"The tools of the MCP server {server.label} are not available." for server in servers)


def _origin(pinned: PinnedTool) -> str:
    claims = ["the server says that it only reads"] if pinned.tool.read_only else []
    claims += ["its definition has changed since it was first seen or last checked"] if pinned.is_changed else []
    note = f" ({'; '.join(claims)})" if claims else ""
    return f"of the MCP server {server_name(pinned.full_name)}{note}"


def _output(result: McpResult) -> Output:
    count = len(result.images)
    text = result.text or (f"{count} image{'s' * (count > 1)}." if count else "The tool returned nothing.")
    output = failed_output(text) if result.is_error else Output(text)
    return replace(output, images=tuple(NewImage(image.data, image.media_type) for image in result.images))


_DELETED = "It was deleted."


class RunTools(Struct, frozen=True):
    tools: list[Tool]
    # About servers that are not available. Empty: all are.
    instructions: str


class McpTools:
    def __init__(self, database: Database, settings: Settings, sandbox: Sandbox | None) -> None:
        self._database = database
        self._max_known = settings.mcp.tools
        self._connections = McpConnections(settings.mcp, sandbox, result_characters=settings.model.tool_result_bytes)
        self._cipher = SecretCipher(settings.encryption, settings.data_dir)
        self._tokens = OAuthTokens(settings.credential, settings.mcp.allowed_addresses)

    async def load(self, lease: Lease) -> RunTools:
        """Connects only if no attempt at the run has listed the tools."""
        if not lease.setup.mcp_servers:
            return RunTools([], "")
        pinned = await calls.stored_mcp_tools(self._database, lease) or await self._pin(lease)
        return RunTools(
            [self._tool(lease, tool) for tool in pinned.tools], unavailable_instructions(pinned.unavailable)
        )

    def _tool(self, lease: Lease, pinned: PinnedTool) -> Tool:
        """Always external: that a tool only reads is the server's claim."""

        async def carry_out(arguments: dict[str, Any], context: CallContext) -> Output:
            try:
                return _output(await self._call(lease, pinned.server_id, pinned.tool.name, arguments, context.key))
            except McpFailure as failure:
                # Not an unknown outcome, about which a person would be asked: the model knows what was going on.
                return failed_output(failure)

        return Tool(
            spec=ToolSpec(pinned.full_name, pinned.tool.description, pinned.tool.parameters),
            effect=Effect.EXTERNAL,
            carry_out=carry_out,
            definition_sha256=pinned.definition_sha256,
            is_changed=pinned.is_changed,
            origin=_origin(pinned),
        )

    async def close(self) -> None:
        await self._connections.close()
        self._tokens.close()

    async def _pin(self, lease: Lease) -> PinnedTools:
        found = await self._targets(lease, lease.setup.mcp_servers)
        results = await asyncio.gather(*(self._list(target, lease) for target in found.targets))
        listed = [one for one in results if isinstance(one, ListedServer)]
        unavailable = [one for one in results if isinstance(one, UnavailableServer)]
        unavailable += [UnavailableServer(server_id=one, name=None, reason=_DELETED) for one in found.deleted]
        return await calls.pin_mcp_tools(self._database, lease, listed, unavailable, self._max_known)

    async def _list(self, target: McpTarget, lease: Lease) -> ListedServer | UnavailableServer:
        try:
            tools = await self._connections.list_tools(target, lease.session_id)
        except McpFailure as failure:
            return UnavailableServer(server_id=target.server_id, name=target.name, reason=storable(str(failure)))
        return ListedServer(target.server_id, target.name, tools)

    async def _call(self, lease: Lease, server_id: UUID, tool: str, arguments: dict[str, Any], key: str) -> McpResult:
        # Read for each call: a credential that was rotated during the run is used at once.
        try:
            found = await self._targets(lease, [server_id])
        except ServiceError as fault:
            # Nothing was sent. As any other error, it would make the outcome of the call unknown.
            log.warning("an MCP server was not found", exc_info=fault, extra=fields(server_id=server_id))
            raise McpFailure("The call was not made: the service is not available. Try again.") from fault
        if not found.targets:
            raise McpFailure("The MCP server was deleted.")
        return await self._connections.call(found.targets[0], lease.session_id, tool, arguments, key)

    async def _targets(self, lease: Lease, server_ids: list[UUID]) -> FoundTargets:
        return await self._database.read(
            mcp_servers.targets, self._cipher, self._tokens, lease.workspace_id, list(server_ids)
        )
