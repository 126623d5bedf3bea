"""`qd credentials`. A secret is never an argument: other users of a machine can see those."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quarterdeck.cli import find
from quarterdeck.cli.arguments import CredentialId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import CliError, ExitCode, UsageError
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, file_name, line, text
from quarterdeck.cli.output import actor_name, cell, date_text, print_json, print_list, say

if TYPE_CHECKING:
    from quarterdeck.client.models import CredentialBody

app = typer.Typer(rich_markup_mode=None, help="Manage secrets for MCP servers.")


class Kind(StrEnum):
    BEARER = "bearer"
    HEADER = "header"
    OAUTH = "oauth"


SecretFile = Annotated[
    str | None,
    typer.Option(
        "--secret-file",
        parser=file_name,
        metavar="FILE",
        help="File with the secret. Default: a prompt, or stdin without a terminal.",
    ),
]


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List credentials, newest first, without their secrets."""
    with open_client(profile) as client:
        print_list(
            client.iter_credentials(),
            limit,
            ("ID", "NAME", "KIND", "USED AS", "ROTATED", "CREATED", "BY"),
            _row,
            as_json=as_json,
            empty="No credentials yet.",
        )


@app.command()
def add(
    name: Annotated[str, typer.Argument(parser=line, metavar="NAME", help="Name of the credential.")],
    kind: Annotated[
        Kind,
        typer.Option("--kind", metavar="KIND", help="bearer, header or oauth (client credentials)."),
    ] = Kind.BEARER,
    header: Annotated[
        str | None,
        typer.Option(parser=text, metavar="NAME", help="Name of the header for the secret. Only for header."),
    ] = None,
    token_url: Annotated[
        str | None, typer.Option(parser=text, metavar="URL", help="Token endpoint. Only for oauth.")
    ] = None,
    client_id: Annotated[str | None, typer.Option(parser=text, metavar="ID", help="Client ID. Only for oauth.")] = None,
    scope: Annotated[
        str | None, typer.Option(parser=text, metavar="SCOPE", help="Scopes to request. Only for oauth.")
    ] = None,
    audience: Annotated[
        str | None, typer.Option(parser=text, metavar="AUDIENCE", help="Audience to request. Only for oauth.")
    ] = None,
    secret_file: SecretFile = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Add a credential. Prompts for the secret; it can also be piped in or read from a file."""
    from quarterdeck.client.models import CredentialType

    kinds = {Kind.BEARER: CredentialType.BEARER, Kind.HEADER: CredentialType.HEADER}
    secret = _secret(secret_file)
    with open_client(profile) as client:
        added = client.create_credential(
            name=name,
            kind=kinds.get(kind, CredentialType.OAUTH_CLIENT_CREDENTIALS),
            secret=secret,
            header=header,
            token_url=token_url,
            client_id=client_id,
            scope=scope,
            audience=audience,
        )
    if as_json:
        print_json(added)
    else:
        say(f"added {added.name} {added.id}")


@app.command()
def rotate(
    credential: CredentialId, secret_file: SecretFile = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Replace the secret of a credential. Everything else stays."""
    with open_client(profile) as client:
        found_id = find.credential_id(client, credential)
        rotated = client.rotate_credential(found_id, secret=_secret(secret_file))
    if as_json:
        print_json(rotated)
    else:
        say(f"rotated {rotated.name}")


@app.command()
def remove(credential: CredentialId, yes: Yes = False, profile: Profile = None) -> None:
    """Remove a credential that no MCP server uses. This can't be undone."""
    with open_client(profile) as client:
        found_id = find.credential_id(client, credential)
        confirm(f"Remove {credential}?", yes=yes)
        client.delete_credential(found_id)
    say(f"removed {credential}")


def _secret(file: str | None) -> str:
    """Without the line break at its end."""
    try:
        if file is not None and file != "-":
            found = Path(file).read_text("utf-8")
        elif file == "-" or not sys.stdin.isatty():
            found = sys.stdin.read()
        else:
            from getpass import getpass

            found = getpass("Secret: ", sys.stderr)
    except UnicodeDecodeError:
        raise UsageError("The secret is not valid UTF-8") from None
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}", ExitCode.INVALID_INPUT) from None
    found = found.removesuffix("\n").removesuffix("\r")
    if not found.strip():
        raise UsageError("No secret given. Enter it at the prompt, pipe it in, or use --secret-file.")
    return found


def _row(credential: "CredentialBody") -> list[str]:
    used = {"bearer": "Authorization: Bearer", "header": credential.header}
    return [
        str(credential.id),
        cell(credential.name),
        credential.kind.value,
        cell(used.get(credential.kind, credential.token_url) or ""),
        date_text(credential.rotated_at) or "never",
        date_text(credential.created_at),
        actor_name(credential.created_by),
    ]
