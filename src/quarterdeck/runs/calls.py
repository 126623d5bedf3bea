"""The tool calls of a run in the log: their start, their effects, their results.

As in lifecycle.py, every write carries the number of the attempt.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.connections.mcp.model import McpTool, PinnedTool, PinnedTools, UnavailableServer
from quarterdeck.connections.mcp.model import pin as pin_definitions
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.db.database import Connection, Database
from quarterdeck.events import log as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.runs import action_store, lifecycle_store
from quarterdeck.runs.action_model import CallAction, RememberedTool
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.sandbox.manifest import FileChanges
from quarterdeck.session_files import service as session_files


class CallStates(Struct, frozen=True):
    """What is known about a call of the last answer."""

    # The last attempt that started each call.
    started: dict[str, int]
    # The actions of this call only: their answers hold up to a megabyte each.
    actions: list[CallAction]
    remembered: frozenset[RememberedTool]


async def states(connection: Connection, lease: Lease, step: int, call_id: str) -> CallStates:
    return CallStates(
        await lifecycle_store.started_calls(connection, lease.session_id, lease.run_id),
        await action_store.of_call(connection, lease.run_id, step, call_id),
        await action_store.remembered_tools(connection, lease.session_id),
    )


async def append(database: Database, lease: Lease, entry: NewEvent) -> None:
    """Stores an event that is no progress of the run. If the connection is lost during the commit, the outcome is
    unknown."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await lifecycle_store.hold(connection, lease)
        await events.append(connection, lease.session_id, lease.run_id, entry)

    await database.transaction(work, repeatable=False)


async def record_start(database: Database, lease: Lease, entry: NewEvent) -> None:
    """Stores the start of a call by this attempt, unless it is stored."""

    async def work(connection: Connection) -> None:
        await events.lock_session(connection, lease.session_id)
        await lifecycle_store.hold(connection, lease)
        started = await lifecycle_store.started_calls(connection, lease.session_id, lease.run_id)
        if started.get(entry.data["call_id"]) != lease.attempt:
            await events.append(connection, lease.session_id, lease.run_id, entry)

    await database.transaction(work, repeatable=True)


async def record_result(
    database: Database, lease: Lease, entry: NewEvent, changes: FileChanges | None = None
) -> int | None:
    """Stores the result of a call of the last answer, unless it is stored, together with the files that the call
    changed. Their contents and the images of the result are in the store already.

    Returns the new revision of the files. If it is not the next one after the revision of the caller's folder, an input
    has added files meanwhile. None: the caller does not know whether its folder has the stored files, because there
    are no changes, or because the result was stored before, possibly by this call.

    Raises PathConflict, and stores nothing, if an input has added a file that the changes do not fit to."""

    async def work(connection: Connection) -> int | None:
        await events.lock_session(connection, lease.session_id)
        await lifecycle_store.count_progress(connection, lease)
        if await lifecycle_store.has_result(connection, lease.session_id, lease.run_id, entry.data["call_id"]):
            return None
        await events.append(connection, lease.session_id, lease.run_id, entry)
        if images := entry.data.get("images"):
            await session_files.keep_contents(connection, lease.session_id, [image["sha256"] for image in images])
        return None if changes is None else await session_files.apply_changes(connection, lease.session_id, changes)

    return await database.transaction(work, repeatable=True)


# The tools of MCP servers that a run has: listed once, and kept for all its attempts.


class ListedServer(Struct, frozen=True):
    server_id: UUID
    name: str
    tools: list[McpTool]


async def stored_mcp_tools(database: Database, lease: Lease) -> PinnedTools | None:
    """None: they were not listed yet."""
    return await database.read(lifecycle_store.mcp_tools, lease.run_id)


async def pin_mcp_tools(
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
        before = await lifecycle_store.mcp_tools(connection, lease.run_id)
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
        await lifecycle_store.set_mcp_tools(connection, lease, pinned)
        for server in unavailable:
            event = NewEvent(EventType.MCP_UNAVAILABLE, msgspec.to_builtins(server))
            await events.append(connection, lease.session_id, lease.run_id, event)
        return pinned

    return await database.transaction(work, repeatable=True)
