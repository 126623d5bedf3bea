"""`qd mcp`."""

from typing import Annotated

import typer
from msgspec import UNSET

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, argument, confirm, flag, line, option
from quarterdeck.cli.output import (
    Column,
    cell,
    created_text,
    date_text,
    print_facts,
    print_json,
    print_list,
    print_result,
    print_table,
    say,
)
from quarterdeck.client.models import McpCheckBody, McpServerBody, McpToolBody

app = typer.Typer(rich_markup_mode=None, help="Manage MCP servers, whose tools agents can call.")

McpServerId = Annotated[
    str, argument("SERVER", "ID, ID prefix or name of the MCP server.", complete=completion.mcp_servers)
]

Name = Annotated[str, argument("NAME", "Name of the server. Its tools are called NAME__TOOL.", parser=line)]
Url = Annotated[str | None, option("URL", "Address of the server (streamable HTTP).", "--url")]
Command = Annotated[str | None, option("COMMAND", "Name of a command that the operator configured.", "--command")]
Credential = Annotated[
    str | None,
    option(
        "CREDENTIAL", "ID or name of the credential for the server.", "--credential", complete=completion.credentials
    ),
]
_TOOL_COLUMNS = ("TOOL", "READ-ONLY (CLAIMED)", "DESCRIPTION")


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List MCP servers, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_mcp_servers(),
            ("ID", "NAME", "TARGET", Column("TOOLS", right=True), "LAST CHECK"),
            _row,
            "No MCP servers yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def add(
    name: Name,
    url: Url = None,
    command: Command = None,
    credential: Credential = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Add an MCP server. `qd mcp check` then connects to it."""
    if (url is None) is (command is None):
        raise CliError("Use either --url or --command")
    with open_client(profile) as client:
        credential_id = None if credential is None else find.credential_id(client, credential)
        added = client.create_mcp_server(name=name, url=url, command=command, credential_id=credential_id)
    print_result(added, f"added {added.name} {added.id}", as_json=as_json)


@app.command()
def show(server: McpServerId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show an MCP server and its known tools."""
    with open_client(profile) as client:
        found = client.get_mcp_server(find.mcp_server_id(client, server))
    if as_json:
        print_json(found)
        return
    print_facts(
        [
            ("server", found.id),
            ("name", found.name),
            ("url", found.url),
            ("command", found.command),
            ("credential", found.credential_id),
            ("last check", _check_text(found)),
            ("created", created_text(found)),
        ]
    )
    say("")
    print_table(_TOOL_COLUMNS, map(_tool_row, found.tools), empty="No known tools.")


@app.command()
def change(
    server: McpServerId,
    name: Annotated[str | None, option("NAME", "New name.", "--name", parser=line)] = None,
    url: Url = None,
    command: Command = None,
    credential: Credential = None,
    no_credential: Annotated[bool, flag("--no-credential", "Call the server without a credential.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change an MCP server, from the next run of a session on. --url and --command replace each other."""
    if url is not None and command is not None:
        raise CliError("Use either --url or --command")
    if credential is not None and no_credential:
        raise CliError("Use either --credential or --no-credential")
    if not no_credential and all(value is None for value in (name, url, command, credential)):
        raise CliError("Nothing to change. See `qd mcp change --help`.")
    with open_client(profile) as client:
        found_id = find.mcp_server_id(client, server)
        changed = client.change_mcp_server(
            found_id,
            name=UNSET if name is None else name,
            url=url if url is not None else None if command is not None else UNSET,
            command=command if command is not None else None if url is not None else UNSET,
            credential_id=find.credential_id(client, credential) if credential else None if no_credential else UNSET,
        )
    print_result(changed, f"changed {changed.name}", as_json=as_json)


@app.command()
def remove(server: McpServerId, yes: Yes = False, profile: Profile = None) -> None:
    """Remove an MCP server. Agents and sessions that name it go on without its tools. This can't be undone."""
    with open_client(profile) as client:
        found = client.get_mcp_server(find.mcp_server_id(client, server))
        confirm(f"Remove {found.name}?", yes=yes)
        client.delete_mcp_server(found.id)
    say(f"removed {found.name}")


@app.command()
def check(server: McpServerId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Connect to an MCP server and accept the tools that it offers now. The exit code is 1 if that fails."""
    with open_client(profile) as client:
        found = client.check_mcp_server(find.mcp_server_id(client, server))
    if as_json:
        print_json(found)
    elif found.ok:
        print_table(_TOOL_COLUMNS, map(_tool_row, found.tools), empty="The server offers no tools.")
        _say_changes(found)
    else:
        say(f"failed: {found.reason}")
    if not found.ok:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


def _say_changes(found: McpCheckBody) -> None:
    for what, names in (("new", found.added), ("changed", found.changed), ("removed", found.removed)):
        if names:
            say(f"{what}: {', '.join(names)}")


def _row(server: McpServerBody) -> list[object]:
    target = server.url or f"command {server.command}"
    return [server.id, server.name, cell(target), server.tool_count, cell(_check_text(server))]


def _check_text(server: McpServerBody) -> str:
    if server.checked_at is None:
        return "never"
    outcome = "ok" if server.check_failure is None else f"failed: {server.check_failure}"
    return f"{date_text(server.checked_at)} {outcome}"


def _tool_row(tool: McpToolBody) -> list[object]:
    return [tool.full_name, tool.read_only, cell(" ".join(tool.description.split()))]
