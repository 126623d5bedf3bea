"""Operations on MCP servers, and what runs need to know of them."""

from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import asdict, replace

from quarterdeck.auth.access import Access, visible_record, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.connections.credentials import service as credentials
from quarterdeck.connections.credentials.authorizations import OAuthTokens
from quarterdeck.connections.credentials.model import Authorization
from quarterdeck.connections.mcp.connections import McpConnections
from quarterdeck.connections.mcp.model import (
    McpFailure,
    McpTarget,
    McpTool,
    definition_sha256,
    full_name,
    model_name,
    read_commands,
)
from quarterdeck.connections.servers import store
from quarterdeck.connections.servers.model import (
    ChangeMcpServerBody,
    CreateMcpServerBody,
    FoundTargets,
    McpCheckBody,
    McpServerBody,
    McpServerDetailBody,
    McpServerPage,
    McpToolBody,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import McpSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.core.text_types import storable
from quarterdeck.db.database import Connection
from quarterdeck.outbound.rules import AddressPolicy, read_url
from quarterdeck.sandbox.adapter import Sandbox

NAME_TAKEN = "This workspace already has an MCP server with this name."
MAY_NOT_SEND = "To choose the server that gets a credential, the permission credential.manage is needed too."
CHANGED_MEANWHILE = "The server was changed while it was being checked. Check it again."


def too_many_servers(limit: int) -> str:
    return f"This workspace already has the maximum of {limit} MCP servers. Delete one first."


def check_one_connection(url: str | None, command: str | None, credential_id: UUID | None) -> None:
    if (url is None) == (command is None):
        raise errors.invalid("Give either url or command.")
    if command is not None and credential_id is not None:
        raise errors.invalid("credential_id is for servers with a url. Commands get no credentials.")


def check_may_send(
    principal: Principal, wanted: McpServerBody | CreateMcpServerBody, found: McpServerBody | None
) -> None:
    """Whoever decides where a credential is sent can read it there."""
    if wanted.credential_id is None:
        return
    before = None if found is None else (found.credential_id, found.url)
    if before != (wanted.credential_id, wanted.url) and not principal.may(Permission.CREDENTIAL_MANAGE):
        raise errors.exceeds_caller(MAY_NOT_SEND)


def with_changes(server: McpServerBody, body: ChangeMcpServerBody) -> McpServerBody:
    given: dict[str, Any] = {name: value for name, value in asdict(body).items() if value is not UNSET}
    if given.get("url") is not None:
        given.setdefault("command", None)
    elif given.get("command") is not None:
        given.setdefault("url", None)
    wanted = replace(server, **given)
    check_one_connection(wanted.url, wanted.command, wanted.credential_id)
    return wanted


def tool_body(server_name: str, tool: McpTool) -> McpToolBody:
    return McpToolBody(
        name=tool.name,
        full_name=full_name(server_name, tool.name),
        description=tool.description,
        parameters=tool.parameters,
        read_only=tool.read_only,
    )


def check_body(
    server_name: str, known: dict[str, bytes], tools: list[McpTool], failure: str | None, now: datetime
) -> McpCheckBody:
    """`known`: the definitions from before the check."""
    names = {tool.name for tool in tools}
    added = names - known.keys()
    changed = {tool.name for tool in tools if known.get(tool.name) != definition_sha256(tool)} - added
    return McpCheckBody(
        ok=failure is None,
        reason=failure,
        checked_at=now,
        tools=[tool_body(server_name, tool) for tool in tools],
        added=sorted(added),
        changed=sorted(changed),
        removed=sorted(known.keys() - names) if failure is None else [],
    )


class McpChecks:
    """Lists the tools of servers, in an API process. A check has a connection of its own, which ends with it."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._slots = Slots(settings.connections, settings.checks_per_workspace)
        self._connections: McpConnections | None = None

    def open(self, sandbox: Sandbox | None) -> None:
        """When the process starts, before it serves requests."""
        self._connections = McpConnections(self._settings, sandbox)

    async def list_tools(self, workspace_id: UUID, target: McpTarget) -> list[McpTool]:
        """Raises McpFailure."""
        assert self._connections is not None, "opened when the process starts"
        owner = new_id()
        async with hold_slot(self._slots, workspace_id, self._settings.connect_seconds, "checks of MCP servers"):
            try:
                return await self._connections.list_tools(target, owner)
            finally:
                await self._connections.close_owner(owner)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()


class McpOffer:
    """Which servers workspaces may add: URLs by the address policy, commands by the file of the operator."""

    def __init__(self, settings: McpSettings) -> None:
        """Raises CommandsError if the file of the operator is unusable."""
        self._policy = AddressPolicy(exceptions=settings.allowed_addresses)
        self._commands = sorted(read_commands(settings.commands_file))

    def check(self, url: str | None, command: str | None) -> None:
        if url is not None:
            read_url(url, self._policy)
        if command is not None and command not in self._commands:
            known = f"Use one of: {', '.join(self._commands)}." if self._commands else "This server has none."
            raise errors.invalid(f"command must be the name of a command that the operator configured. {known}")


Body = TypeVar("Body")

_NAME_TAKEN = ErrorCase(
    "name_taken",
    errors.conflict(NAME_TAKEN),
    "Another MCP server of the workspace has this name.",
    "Choose another name, or use that server.",
)
_MAY_NOT_SEND = ErrorCase(
    "may_not_send",
    errors.exceeds_caller(MAY_NOT_SEND),
    "The request would send a credential to a server that does not get it yet, and the key lacks `credential.manage`.",
    "Use a key with both permissions, or leave `credential_id` out.",
)


@operation(
    summary="List the MCP servers of a workspace",
    description="One page per call, newest first unless order=asc. Get a server for its tools.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_mcp_servers(access: Access, call: Call[None], request: PageRequest) -> McpServerPage:
    return await access.page(call, visible_workspace(call), McpServerPage, request, store.page)


@operation(
    summary="Get an MCP server",
    description="With its known tools.",
    permission=Permission.WORKSPACE_READ,
    success="The server.",
    etag=True,
)
async def get_mcp_server(access: Access, call: Call[None], mcp_server_id: UUID) -> McpServerDetailBody:
    async def show(connection: Connection, principal: Principal, server: McpServerBody) -> McpServerDetailBody:
        tools = await store.tools(connection, principal.workspace_id, mcp_server_id)
        return McpServerDetailBody(**asdict(server), tools=[tool_body(server.name, tool) for tool in tools])

    return await access.read(call, visible_record(call, "MCP server", store.get, mcp_server_id), show)


@operation(
    summary="Add an MCP server",
    description=(
        "Agents and sessions that name it offer its tools to the model. Give either `url` (streamable HTTP) or "
        "`command` (stdio, configured by the operator). The server is not contacted: check it afterwards."
    ),
    permission=Permission.AGENT_MANAGE,
    created=True,
    success="The new server.",
    idempotent=True,
    etag=True,
    refusals=(
        _MAY_NOT_SEND,
        _NAME_TAKEN,
        ErrorCase(
            "too_many",
            errors.conflict(too_many_servers(50)),
            "The workspace has the maximum number of MCP servers (default: 50).",
            "Delete a server that you no longer need.",
        ),
    ),
)
async def create_mcp_server(
    changes: Changes, settings: McpSettings, offer: McpOffer, call: Call[CreateMcpServerBody]
) -> Answer[McpServerBody]:
    async def effect(
        connection: Connection, principal: Principal, workspace_id: UUID, body: CreateMcpServerBody
    ) -> Made:
        check_one_connection(body.url, body.command, body.credential_id)
        check_may_send(principal, body, None)
        offer.check(body.url, body.command)
        await store.lock_workspace(connection, workspace_id)
        if await store.count(connection, workspace_id) >= settings.per_workspace:
            raise errors.conflict(too_many_servers(settings.per_workspace))
        await _check_name_free(connection, workspace_id, body.name)
        if body.credential_id is not None:
            await credentials.hold_credential(connection, workspace_id, body.credential_id)
        server_id = new_id()
        await store.add(connection, workspace_id, server_id, body, principal.user_id)
        created = await _stored(connection, workspace_id, server_id)
        return Made.plain(created, server_id, created.name, **_connection(created))

    return await changes.perform(call, visible_workspace(call), ObjectType.MCP_SERVER, effect)


@operation(
    summary="Change an MCP server",
    description=(
        "Changes only the given fields. A new URL, command or credential applies to the next call, a new name to the "
        "next run. The known tools stay, so that a tool with another definition is noticed."
    ),
    permission=Permission.AGENT_MANAGE,
    reads=True,
    success="The changed server.",
    idempotent=True,
    etag=True,
    conditional=True,
    refusals=(_MAY_NOT_SEND, _NAME_TAKEN),
)
async def change_mcp_server(
    changes: Changes, offer: McpOffer, call: Call[ChangeMcpServerBody], mcp_server_id: UUID
) -> Answer[McpServerBody]:
    async def effect(connection: Connection, principal: Principal, _: McpServerBody, body: ChangeMcpServerBody) -> Made:
        workspace_id = principal.workspace_id
        await store.lock_workspace(connection, workspace_id)
        found = await _locked(connection, call, workspace_id, mcp_server_id)
        wanted = with_changes(found, body)
        if wanted == found:
            return Made(shown=found, kept=found, object_id=mcp_server_id, changed=False)
        check_may_send(principal, wanted, found)
        if (wanted.url, wanted.command) != (found.url, found.command):
            offer.check(wanted.url, wanted.command)
        if wanted.name != found.name:
            await _check_name_free(connection, workspace_id, wanted.name)
        if wanted.credential_id is not None:
            await credentials.hold_credential(connection, workspace_id, wanted.credential_id)
        await store.change(connection, workspace_id, wanted)
        changed = await _stored(connection, workspace_id, mcp_server_id)
        return Made.plain(changed, mcp_server_id, changed.name, before=found.name, **_connection(changed))

    return await changes.perform(
        call, visible_record(call, "MCP server", store.get, mcp_server_id), ObjectType.MCP_SERVER, effect
    )


@operation(
    summary="Delete an MCP server",
    description="Agents and sessions that name it continue without its tools.",
    permission=Permission.AGENT_MANAGE,
    success="The server is deleted.",
    conditional=True,
)
async def delete_mcp_server(changes: Changes, call: Call[None], mcp_server_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, _: McpServerBody, __: None) -> Made:
        found = await _locked(connection, call, principal.workspace_id, mcp_server_id)
        await store.delete(connection, principal.workspace_id, mcp_server_id)
        return Made(shown=None, kept=None, object_id=mcp_server_id, object_name=found.name, detail=_connection(found))

    return await changes.perform(
        call, visible_record(call, "MCP server", store.get, mcp_server_id), ObjectType.MCP_SERVER, effect
    )


@operation(
    summary="Check an MCP server",
    description=(
        "Connects, and lists the tools. A server that fails is a response with `ok: false` and the reason. If it "
        "succeeds, these definitions become the known ones: the tool policy applies to them as they are now."
    ),
    permission=Permission.AGENT_MANAGE,
    reads=True,
    success="The result of the check.",
    conditional=True,
    refusals=(
        ErrorCase(
            "changed",
            errors.conflict(CHANGED_MEANWHILE),
            "The server was changed during the check.",
            "Check it again.",
        ),
    ),
)
async def check_mcp_server(
    access: Access,
    changes: Changes,
    checks: McpChecks,
    cipher: SecretCipher,
    tokens: OAuthTokens,
    call: Call[None],
    mcp_server_id: UUID,
) -> Answer[McpCheckBody]:
    """Check the caller before connecting, and again with the write: the server may take long. No transaction is open
    meanwhile."""

    async def find(
        connection: Connection, principal: Principal, server: McpServerBody
    ) -> tuple[UUID, McpServerBody, McpTarget]:
        target = await _target(connection, cipher, tokens, principal.workspace_id, server)
        return principal.workspace_id, server, target

    lookup = visible_record(call, "MCP server", store.get, mcp_server_id)
    workspace_id, server, target = await access.read(call, lookup, find)
    tools: list[McpTool] = []
    failure = None
    try:
        tools = await checks.list_tools(workspace_id, target)
    except McpFailure as fault:
        failure = storable(str(fault))

    async def effect(connection: Connection, _: Principal, __: McpServerBody, ___: None) -> Made:
        found = await _locked(connection, call, workspace_id, mcp_server_id)
        if found.revision != server.revision:
            raise errors.conflict(CHANGED_MEANWHILE)
        await store.note_check(connection, workspace_id, mcp_server_id, failure)
        known = await store.hashes(connection, workspace_id, mcp_server_id)
        if failure is None:
            await replace_known(connection, workspace_id, mcp_server_id, tools)
        shown = check_body(server.name, known, tools, failure, datetime.now(UTC))
        return Made.plain(shown, mcp_server_id, server.name, ok=shown.ok, tools=len(tools))

    return await changes.perform(
        call, visible_record(call, "MCP server", store.get, mcp_server_id), ObjectType.MCP_SERVER, effect
    )


async def check_exist(connection: Connection, workspace_id: UUID, ids: list[UUID]) -> None:
    """For agents and sessions that name servers."""
    if len(set(ids)) != len(ids):
        raise errors.invalid("mcp_servers names a server twice.")
    found = await store.existing(connection, workspace_id, ids)
    for server_id in ids:
        if server_id not in found:
            raise errors.invalid(f"mcp_servers names a server that does not exist in this workspace: {server_id}.")


async def targets(
    connection: Connection, cipher: SecretCipher, tokens: OAuthTokens, workspace_id: UUID, ids: list[UUID]
) -> FoundTargets:
    """For a run. Connects to nothing."""
    found = {server_id: await store.get(connection, workspace_id, server_id) for server_id in ids}
    return FoundTargets(
        targets=[
            await _target(connection, cipher, tokens, workspace_id, server)
            for server in found.values()
            if server is not None
        ],
        deleted=[server_id for server_id, server in found.items() if server is None],
    )


async def note_first_seen(
    connection: Connection, workspace_id: UUID, server_id: UUID, tools: list[McpTool], limit: int
) -> dict[str, bytes]:
    """Remember the tools that are not known yet, up to `limit` of a server. Returns the hashes of the known definitions
    by name. A tool beyond the limit has an empty hash, so that it counts as changed: a server that invents names would
    otherwise fill the table. So does a tool that a model would call by the name of a known one, such as `a.b` after
    `a_b`: what was allowed is the known one."""
    known = await store.hashes(connection, workspace_id, server_id)
    taken = set(map(model_name, known))
    added = [tool for tool in tools if model_name(tool.name) not in taken][: max(0, limit - len(known))]
    # The lock orders this after a check or a deletion, and two runs after each other.
    if added and await store.lock(connection, workspace_id, server_id):
        await store.add_tools(connection, workspace_id, server_id, added)
        known = await store.hashes(connection, workspace_id, server_id)
    return {tool.name: b"" for tool in tools} | known


async def replace_known(connection: Connection, workspace_id: UUID, server_id: UUID, tools: list[McpTool]) -> None:
    """A person accepts what the server offers now. The row of the server must be locked."""
    await store.forget_tools(connection, workspace_id, server_id)
    await store.add_tools(connection, workspace_id, server_id, tools)


async def _target(
    connection: Connection, cipher: SecretCipher, tokens: OAuthTokens, workspace_id: UUID, server: McpServerBody
) -> McpTarget:
    authorization: Authorization | None = None
    revision = f"{server.revision}"
    if server.credential_id is not None:
        usable = await credentials.authorization(connection, cipher, tokens, workspace_id, server.credential_id)
        authorization = usable.authorization
        revision = f"{server.revision}.{server.credential_id}.{usable.revision}"
    return McpTarget(
        server_id=server.id,
        workspace_id=workspace_id,
        name=server.name,
        url=server.url,
        command=server.command,
        authorization=authorization,
        revision=revision,
    )


async def _stored(connection: Connection, workspace_id: UUID, server_id: UUID) -> McpServerBody:
    return errors.existing(await store.get(connection, workspace_id, server_id), "MCP server")


async def _locked(connection: Connection, call: Call[Body], workspace_id: UUID, server_id: UUID) -> McpServerBody:
    """Lock and read the server. It may have been deleted since the check of visibility."""
    await store.lock(connection, workspace_id, server_id)
    server = await _stored(connection, workspace_id, server_id)
    call.check_unchanged(server.revision)
    return server


async def _check_name_free(connection: Connection, workspace_id: UUID, name: str) -> None:
    """Names are only taken under the lock of the workspace."""
    if await store.is_name_taken(connection, workspace_id, name):
        raise errors.conflict(NAME_TAKEN)


def _connection(server: McpServerBody) -> dict[str, object]:
    """For the audit log. Never the whole URL, which may hold a secret."""
    if server.url is None:
        return {"command": server.command}
    credential_id = None if server.credential_id is None else str(server.credential_id)
    return {"host": urlsplit(server.url).hostname, "credential_id": credential_id}
