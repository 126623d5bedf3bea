"""The tools of MCP servers that a run has: listed once, and kept for all its attempts."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.connections.mcp.definitions import pin as pin_definitions
from quarterdeck.connections.mcp.model import McpTool, PinnedTool, PinnedTools, UnavailableServer
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.events.notifications import announce_events
from quarterdeck.runs import mcp_tools_store as store
from quarterdeck.runs.lifecycle import Lease, Superseded


class ListedServer(Struct, frozen=True):
    server_id: UUID
    name: str
    tools: list[McpTool]


async def stored(database: Database, lease: Lease) -> PinnedTools | None:
    """None: they were not listed yet."""

    async def read(connection: Connection) -> PinnedTools | None:
        return await store.get(connection, lease.run_id)

    return await database.read(read)


async def pin(
    database: Database,
    lease: Lease,
    listed: Sequence[ListedServer],
    unavailable: Sequence[UnavailableServer],
    max_known: int,
) -> PinnedTools:
    """Stores what the servers listed, and logs those that did not. `max_known`: definitions that are kept of one
    server. Raises Superseded if this attempt has lost the run."""

    async def work(connection: Connection) -> PinnedTools:
        await events.lock_session(connection, lease.session_id)
        before = await store.get(connection, lease.run_id)
        if before is not None:
            # The outcome of an earlier commit was unknown.
            return before
        tools: list[PinnedTool] = []
        for one in listed:
            known = await mcp_servers.note_first_seen(
                connection, lease.workspace_id, one.server_id, one.tools, max_known
            )
            tools += pin_definitions(one.server_id, one.name, one.tools, known)
        pinned = PinnedTools(tools, list(unavailable))
        if not await store.set_tools(connection, lease.run_id, lease.attempt, pinned):
            raise Superseded
        new = [NewEvent(EventType.MCP_UNAVAILABLE, msgspec.to_builtins(one)) for one in unavailable]
        if new:
            await events.append(connection, lease.session_id, lease.run_id, new)
            await announce_events(connection, [lease.session_id])
        return pinned

    return await database.transaction(work, repeatable=True)
