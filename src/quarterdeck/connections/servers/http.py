"""HTTP handlers of MCP servers."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.connections.credentials.authorizations import OAuthTokens
from quarterdeck.connections.servers import rules, service
from quarterdeck.connections.servers.checks import McpChecks, McpOffer
from quarterdeck.connections.servers.model import (
    ChangeMcpServerBody,
    CreateMcpServerBody,
    McpCheckBody,
    McpServerBody,
    McpServerDetailBody,
    McpServerPage,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import McpSettings
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request

_NAME_TAKEN = Refusal(
    "name_taken",
    errors.conflict(rules.NAME_TAKEN),
    "Another MCP server of the workspace has this name.",
    "Choose another name, or use that server.",
)
_MAY_NOT_SEND = Refusal(
    "may_not_send",
    errors.exceeds_caller(rules.MAY_NOT_SEND),
    "The request would send a credential to a server that does not get it yet, and the key lacks `credential.manage`.",
    "Use a key with both permissions, or leave `credential_id` out.",
)


@operation(
    summary="List the MCP servers of a workspace",
    description="One page per call, newest first unless order=asc. Get a server for its tools.",
    permission=Permission.WORKSPACE_READ,
    success_type=McpServerPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
)
async def list_mcp_servers(request: Request, access: Access) -> McpServerPage:
    page = request.page_request()
    return await service.list_mcp_servers(access, request.call_without_body(), page)


@operation(
    summary="Add an MCP server",
    description=(
        "Agents and sessions that name it offer its tools to the model. Give either `url` (streamable HTTP) or "
        "`command` (stdio, configured by the operator). The server is not contacted: check it afterwards."
    ),
    permission=Permission.AGENT_MANAGE,
    payload=CreateMcpServerBody,
    success_status=201,
    success_type=McpServerBody,
    success="The new server.",
    idempotent=True,
    etag=True,
    refusals=(
        _MAY_NOT_SEND,
        _NAME_TAKEN,
        Refusal(
            "too_many",
            errors.conflict(rules.too_many(50)),
            "The workspace has the maximum number of MCP servers (default: 50).",
            "Delete a server that you no longer need.",
        ),
    ),
)
async def create_mcp_server(request: Request, changes: Changes, settings: McpSettings, offer: McpOffer) -> Answer:
    return await service.create_mcp_server(changes, settings, offer, await request.call(CreateMcpServerBody))


@operation(
    summary="Get an MCP server",
    description="With its known tools.",
    permission=Permission.WORKSPACE_READ,
    success_type=McpServerDetailBody,
    success="The server.",
    etag=True,
)
async def get_mcp_server(request: Request, access: Access) -> McpServerDetailBody:
    server_id = request.path_id("mcp_server_id")
    return await service.get_mcp_server(access, request.call_without_body(), server_id)


@operation(
    summary="Change an MCP server",
    description=(
        "Changes only the given fields. A new URL, command or credential applies to the next call, a new name to the "
        "next run. The known tools stay, so that a tool with another definition is noticed."
    ),
    permission=Permission.AGENT_MANAGE,
    reads=True,
    payload=ChangeMcpServerBody,
    success_type=McpServerBody,
    success="The changed server.",
    idempotent=True,
    etag=True,
    conditional=True,
    refusals=(_MAY_NOT_SEND, _NAME_TAKEN),
)
async def change_mcp_server(request: Request, changes: Changes, offer: McpOffer) -> Answer:
    server_id = request.path_id("mcp_server_id")
    return await service.change_mcp_server(changes, offer, await request.call(ChangeMcpServerBody), server_id)


@operation(
    summary="Delete an MCP server",
    description="Agents and sessions that name it continue without its tools.",
    permission=Permission.AGENT_MANAGE,
    success_status=204,
    success_type=None,
    success="The server is deleted.",
    conditional=True,
)
async def delete_mcp_server(request: Request, changes: Changes) -> Answer:
    server_id = request.path_id("mcp_server_id")
    return await service.delete_mcp_server(changes, request.call_without_body(), server_id)


@operation(
    summary="Check an MCP server",
    description=(
        "Connects, and lists the tools. A server that fails is a response with `ok: false` and the reason. If it "
        "succeeds, these definitions become the known ones: the tool policy applies to them as they are now."
    ),
    permission=Permission.AGENT_MANAGE,
    reads=True,
    success_type=McpCheckBody,
    success="The result of the check.",
    conditional=True,
    refusals=(
        Refusal(
            "changed",
            errors.conflict(rules.CHANGED_MEANWHILE),
            "The server was changed during the check.",
            "Check it again.",
        ),
    ),
)
async def check_mcp_server(
    request: Request, access: Access, changes: Changes, checks: McpChecks, cipher: SecretCipher, tokens: OAuthTokens
) -> Answer:
    server_id = request.path_id("mcp_server_id")
    call = request.call_without_body()
    return await service.check_mcp_server(access, changes, checks, cipher, tokens, call, server_id)
