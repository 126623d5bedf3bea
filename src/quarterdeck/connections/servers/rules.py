"""Decisions about MCP servers, without I/O."""

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import asdict, replace

from quarterdeck.connections.mcp.model import McpTool, definition_sha256, full_name
from quarterdeck.connections.servers.model import (
    ChangeMcpServerBody,
    CreateMcpServerBody,
    McpCheckBody,
    McpServerBody,
    McpToolBody,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal

NAME_TAKEN = "This workspace already has an MCP server with this name."
MAY_NOT_SEND = "To choose the server that gets a credential, the permission credential.manage is needed too."
CHANGED_MEANWHILE = "The server was changed while it was being checked. Check it again."


def too_many(limit: int) -> str:
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


def changed(server: McpServerBody, body: ChangeMcpServerBody) -> McpServerBody:
    given: dict[str, Any] = {name: value for name, value in asdict(body).items() if value is not UNSET}
    if given.get("url") is not None:
        given.setdefault("command", None)
    elif given.get("command") is not None:
        given.setdefault("url", None)
    wanted = replace(server, **given)
    check_one_connection(wanted.url, wanted.command, wanted.credential_id)
    return wanted


def check_distinct(ids: list[UUID]) -> None:
    if len(set(ids)) != len(ids):
        raise errors.invalid("mcp_servers names a server twice.")


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
