"""`qd credentials`. A secret is never an argument: other users of a machine can see those."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import Limit, Yes, argument, choice, confirm, file_name, line, option
from quarterdeck.cli.output import Page, Result, cell, say
from quarterdeck.client import Client
from quarterdeck.client.models import CredentialBody, CredentialType

app = typer.Typer(rich_markup_mode=None)

# As options name them.
_KINDS = {
    "bearer": CredentialType.BEARER,
    "header": CredentialType.HEADER,
    "oauth": CredentialType.OAUTH_CLIENT_CREDENTIALS,
}

CredentialId = Annotated[
    str, argument("CREDENTIAL", "ID, ID prefix or name of the credential.", complete=completion.credentials)
]
SecretFile = Annotated[
    str | None,
    option("FILE", "File with the secret. Default: a prompt, or stdin without a terminal.", parser=file_name),
]


@command(app, "list")
def list_(client: Client, limit: Limit = 50) -> Page[CredentialBody]:
    """List credentials, newest first, without their secrets."""
    columns = ("ID", "NAME", "KIND", "USED AS", "ROTATED", "CREATED", "BY")
    return Page(client.iter_credentials(), limit, columns, _row, "No credentials yet.")


@command(app)
def add(
    client: Client,
    name: Annotated[str, argument("NAME", "Name of the credential.", parser=line)],
    kind: Annotated[str, choice("KIND", "bearer, header or oauth (client credentials).", values=_KINDS)] = "bearer",
    header: Annotated[str | None, option("NAME", "Name of the header for the secret. Only for header.")] = None,
    token_url: Annotated[str | None, option("URL", "Token endpoint. Only for oauth.")] = None,
    client_id: Annotated[str | None, option("ID", "Client ID. Only for oauth.")] = None,
    scope: Annotated[str | None, option("SCOPE", "Scopes to request. Only for oauth.")] = None,
    audience: Annotated[str | None, option("AUDIENCE", "Audience to request. Only for oauth.")] = None,
    secret_file: SecretFile = None,
) -> Result:
    """Add a credential. Prompts for the secret; it can also be piped in or read from a file."""
    added = client.create_credential(
        name=name,
        kind=_KINDS[kind],
        secret=_secret(secret_file),
        header=header,
        token_url=token_url,
        client_id=client_id,
        scope=scope,
        audience=audience,
    )
    return Result(added, f"added {added.name} {added.id}")


@command(app)
def rotate(client: Client, credential: CredentialId, secret_file: SecretFile = None) -> Result:
    """Replace the secret of a credential. Everything else stays."""
    found_id = find.credential_id(client, credential)
    rotated = client.rotate_credential(found_id, secret=_secret(secret_file))
    return Result(rotated, f"rotated {rotated.name}")


@command(app)
def remove(client: Client, credential: CredentialId, yes: Yes = False) -> None:
    """Remove a credential that no MCP server uses. This can't be undone."""
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
            found = getpass("Secret: ", sys.stderr)
    except UnicodeDecodeError:
        raise CliError("The secret is not valid UTF-8") from None
    found = found.removesuffix("\n").removesuffix("\r")
    if not found.strip():
        raise CliError("No secret given. Enter it at the prompt, pipe it in, or use --secret-file.")
    return found


def _row(one: CredentialBody) -> list[object]:
    used = {"bearer": "Authorization: Bearer", "header": one.header}.get(one.kind, one.token_url)
    rotated = one.rotated_at or "never"
    return [one.id, cell(one.name), one.kind, cell(used or ""), rotated, one.created_at, one.created_by]
