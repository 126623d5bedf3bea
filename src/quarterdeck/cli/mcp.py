"""`qd mcp`."""

from typing import Annotated

import typer
from msgspec import UNSET

from quarterdeck.cli import completion, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import Limit, Yes, argument, check_either, confirm, flag, line, option, or_unset
from quarterdeck.cli.output import Page, Result, cell, created_text, date_text, print_facts, print_table, say
from quarterdeck.client import Client
from quarterdeck.client.models import McpCheckBody, McpServerBody, McpServerDetailBody, McpToolBody

app = typer.Typer(rich_markup_mode=None)

McpServerId = Annotated[
    str, argument("SERVER", "ID, ID prefix or name of the MCP server.", complete=completion.mcp_servers)
]
Name = Annotated[str, argument("NAME", "Name of the server. Its tools are called NAME__TOOL.", parser=line)]
Url = Annotated[str | None, option("URL", "Address of the server (streamable HTTP).")]
Command = Annotated[str | None, option("COMMAND", "Name of a command that the operator configured.")]
Credential = Annotated[
    str | None, option("CREDENTIAL", "ID or name of the credential for the server.", complete=completion.credentials)
]


@command(app, "list")
def list_(client: Client, limit: Limit = 50) -> Page[McpServerBody]:
    """List MCP servers, newest first."""
    columns = ("ID", "NAME", "TARGET", ">TOOLS", "LAST CHECK")
    return Page(client.iter_mcp_servers(), limit, columns, _row, "No MCP servers yet.")


@command(app)
def add(client: Client, name: Name, url: Url = None, command: Command = None, credential: Credential = None) -> Result:
    """Add an MCP server. `qd mcp check` then connects to it."""
    if (url is None) is (command is None):
        raise CliError("Use either --url or --command")
    credential_id = None if credential is None else find.credential_id(client, credential)
    added = client.create_mcp_server(name=name, url=url, command=command, credential_id=credential_id)
    return Result(added, f"added {added.name} {added.id}")


@command(app)
def show(client: Client, server: McpServerId) -> Result:
    """Show an MCP server and its known tools."""
    found = client.get_mcp_server(find.mcp_server_id(client, server))
    return Result(found, lambda: _print_server(found))


@command(app)
def change(
    client: Client,
    server: McpServerId,
    name: Annotated[str | None, option("NAME", "New name.", parser=line)] = None,
    url: Url = None,
    command: Command = None,
    credential: Credential = None,
    no_credential: Annotated[bool, flag("--no-credential", "Call the server without a credential.")] = False,
) -> Result:
    """Change an MCP server, from the next run of a session on. --url and --command replace each other."""
    check_either("--url", url, "--command", command)
    check_either("--credential", credential, "--no-credential", no_credential)
    if not no_credential and all(value is None for value in (name, url, command, credential)):
        raise CliError("Nothing to change. See `qd mcp change --help`.")
    has_target = url is not None or command is not None
    changed = client.change_mcp_server(
        find.mcp_server_id(client, server),
        name=or_unset(name),
        url=url if has_target else UNSET,
        command=command if has_target else UNSET,
        credential_id=find.credential_id(client, credential) if credential else None if no_credential else UNSET,
    )
    return Result(changed, f"changed {changed.name}")


@command(app)
def remove(client: Client, server: McpServerId, yes: Yes = False) -> None:
    """Remove an MCP server. Agents and sessions that name it go on without its tools. This can't be undone."""
    found = client.get_mcp_server(find.mcp_server_id(client, server))
    confirm(f"Remove {found.name}?", yes=yes)
    client.delete_mcp_server(found.id)
    say(f"removed {found.name}")


@command(app)
def check(client: Client, server: McpServerId) -> Result:
    """Connect to an MCP server and accept the tools that it offers now. The exit code is 1 if that fails."""
    found = client.check_mcp_server(find.mcp_server_id(client, server))
    return Result(found, lambda: _print_check(found), exit_code=0 if found.ok else ExitCode.UNSUCCESSFUL)


def _print_server(server: McpServerDetailBody) -> None:
    print_facts(
        [
            ("server", server.id),
            ("name", server.name),
            ("url", server.url),
            ("command", server.command),
            ("credential", server.credential_id),
            ("last check", _check_text(server)),
            ("created", created_text(server)),
        ]
    )
    say("")
    _print_tools(server.tools, empty="No known tools.")


def _print_check(found: McpCheckBody) -> None:
    if not found.ok:
        say(f"failed: {found.reason}")
        return
    _print_tools(found.tools, empty="The server offers no tools.")
    for what, names in (("new", found.added), ("changed", found.changed), ("removed", found.removed)):
        if names:
            say(f"{what}: {', '.join(names)}")


def _print_tools(tools: list[McpToolBody], *, empty: str) -> None:
    rows = [(tool.full_name, tool.read_only, cell(tool.description)) for tool in tools]
    print_table(("TOOL", "READ-ONLY (CLAIMED)", "DESCRIPTION"), rows, empty=empty)


def _row(server: McpServerBody) -> list[object]:
    target = server.url or f"command {server.command}"
    return [server.id, server.name, cell(target), server.tool_count, cell(_check_text(server))]


def _check_text(server: McpServerBody) -> str:
    if server.checked_at is None:
        return "never"
    outcome = "ok" if server.check_failure is None else f"failed: {server.check_failure}"
    return f"{date_text(server.checked_at)} {outcome}"
