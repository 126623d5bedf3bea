"""`qd mcp`."""

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import UNSET

from quarterdeck.cli import completion, find
from quarterdeck.cli.arguments import McpServerId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import ExitCode, UsageError
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, line, text
from quarterdeck.cli.output import (
    Column,
    actor_name,
    cell,
    date_text,
    print_facts,
    print_json,
    print_list,
    print_table,
    say,
)

if TYPE_CHECKING:
    from quarterdeck.client.models import McpCheckBody, McpServerBody, McpToolBody

app = typer.Typer(rich_markup_mode=None, help="Manage MCP servers, whose tools agents can call.")

Name = Annotated[
    str, typer.Argument(parser=line, metavar="NAME", help="Name of the server. Its tools are called NAME__TOOL.")
]
Url = Annotated[
    str | None, typer.Option("--url", parser=text, metavar="URL", help="Address of the server (streamable HTTP).")
]
Command = Annotated[
    str | None,
    typer.Option("--command", parser=text, metavar="COMMAND", help="Name of a command that the operator configured."),
]
Credential = Annotated[
    str | None,
    typer.Option(
        "--credential",
        parser=text,
        metavar="CREDENTIAL",
        help="ID or name of the credential for the server.",
        autocompletion=completion.credentials,
    ),
]
_TOOL_COLUMNS = ("TOOL", "READ-ONLY (CLAIMED)", "DESCRIPTION")


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List MCP servers, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_mcp_servers(),
            limit,
            ("ID", "NAME", "TARGET", Column("TOOLS", right=True), "LAST CHECK"),
            _row,
            as_json=as_json,
            empty="No MCP servers yet.",
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
        raise UsageError("Use either --url or --command")
    with open_client(profile) as client:
        credential_id = None if credential is None else find.credential_id(client, credential)
        added = client.create_mcp_server(name=name, url=url, command=command, credential_id=credential_id)
    if as_json:
        print_json(added)
    else:
        say(f"added {added.name} {added.id}")


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
            ("server", str(found.id)),
            ("name", found.name),
            ("url", found.url),
            ("command", found.command),
            ("credential", None if found.credential_id is None else str(found.credential_id)),
            ("last check", _check_text(found)),
            ("created", f"{date_text(found.created_at)} by {actor_name(found.created_by)}"),
        ]
    )
    say("")
    print_table(_TOOL_COLUMNS, map(_tool_row, found.tools), empty="No known tools.")


@app.command()
def change(
    server: McpServerId,
    name: Annotated[str | None, typer.Option("--name", parser=line, metavar="NAME", help="New name.")] = None,
    url: Url = None,
    command: Command = None,
    credential: Credential = None,
    no_credential: Annotated[
        bool, typer.Option("--no-credential", help="Call the server without a credential.")
    ] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Change an MCP server, from the next run of a session on. --url and --command replace each other."""
    if url is not None and command is not None:
        raise UsageError("Use either --url or --command")
    if credential is not None and no_credential:
        raise UsageError("Use either --credential or --no-credential")
    if not no_credential and all(value is None for value in (name, url, command, credential)):
        raise UsageError("Nothing to change. See `qd mcp change --help`.")
    with open_client(profile) as client:
        found_id = find.mcp_server_id(client, server)
        changed = client.change_mcp_server(
            found_id,
            name=UNSET if name is None else name,
            url=url if url is not None else None if command is not None else UNSET,
            command=command if command is not None else None if url is not None else UNSET,
            credential_id=find.credential_id(client, credential) if credential else None if no_credential else UNSET,
        )
    if as_json:
        print_json(changed)
    else:
        say(f"changed {changed.name}")


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


def _say_changes(found: "McpCheckBody") -> None:
    for what, names in (("new", found.added), ("changed", found.changed), ("removed", found.removed)):
        if names:
            say(f"{what}: {', '.join(names)}")


def _row(server: "McpServerBody") -> list[str]:
    target = server.url or f"command {server.command}"
    return [str(server.id), server.name, cell(target), str(server.tool_count), cell(_check_text(server))]


def _check_text(server: "McpServerBody") -> str:
    if server.checked_at is None:
        return "never"
    outcome = "ok" if server.check_failure is None else f"failed: {server.check_failure}"
    return f"{date_text(server.checked_at)} {outcome}"


def _tool_row(tool: "McpToolBody") -> list[str]:
    return [tool.full_name, "yes" if tool.read_only else "", cell(" ".join(tool.description.split()))]
