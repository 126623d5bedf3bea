"""`qd credentials`. A secret is never an argument: other users of a machine can see those."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, argument, choice, confirm, file_name, line, option
from quarterdeck.cli.output import cell, print_list, print_result, say
from quarterdeck.client.models import CredentialBody, CredentialType

app = typer.Typer(rich_markup_mode=None, help="Manage secrets for MCP servers.")

CredentialId = Annotated[
    str, argument("CREDENTIAL", "ID, ID prefix or name of the credential.", complete=completion.credentials)
]


# As options name them.
_KINDS = {
    "bearer": CredentialType.BEARER,
    "header": CredentialType.HEADER,
    "oauth": CredentialType.OAUTH_CLIENT_CREDENTIALS,
}

SecretFile = Annotated[
    str | None,
    option(
        "FILE",
        "File with the secret. Default: a prompt, or stdin without a terminal.",
        "--secret-file",
        parser=file_name,
    ),
]


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List credentials, newest first, without their secrets."""
    with open_client(profile) as client:
        print_list(
            client.iter_credentials(),
            ("ID", "NAME", "KIND", "USED AS", "ROTATED", "CREATED", "BY"),
            _row,
            "No credentials yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def add(
    name: Annotated[str, argument("NAME", "Name of the credential.", parser=line)],
    kind: Annotated[str, choice("KIND", "bearer, header or oauth (client credentials).", values=_KINDS)] = "bearer",
    header: Annotated[str | None, option("NAME", "Name of the header for the secret. Only for header.")] = None,
    token_url: Annotated[str | None, option("URL", "Token endpoint. Only for oauth.")] = None,
    client_id: Annotated[str | None, option("ID", "Client ID. Only for oauth.")] = None,
    scope: Annotated[str | None, option("SCOPE", "Scopes to request. Only for oauth.")] = None,
    audience: Annotated[str | None, option("AUDIENCE", "Audience to request. Only for oauth.")] = None,
    secret_file: SecretFile = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Add a credential. Prompts for the secret; it can also be piped in or read from a file."""
    secret = _secret(secret_file)
    with open_client(profile) as client:
        added = client.create_credential(
            name=name,
            kind=_KINDS[kind],
            secret=secret,
            header=header,
            token_url=token_url,
            client_id=client_id,
            scope=scope,
            audience=audience,
        )
    print_result(added, f"added {added.name} {added.id}", as_json=as_json)


@app.command()
def rotate(
    credential: CredentialId, secret_file: SecretFile = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Replace the secret of a credential. Everything else stays."""
    with open_client(profile) as client:
        found_id = find.credential_id(client, credential)
        rotated = client.rotate_credential(found_id, secret=_secret(secret_file))
    print_result(rotated, f"rotated {rotated.name}", as_json=as_json)


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
        raise CliError("The secret is not valid UTF-8") from None
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from None
    found = found.removesuffix("\n").removesuffix("\r")
    if not found.strip():
        raise CliError("No secret given. Enter it at the prompt, pipe it in, or use --secret-file.")
    return found


def _row(credential: CredentialBody) -> list[object]:
    used = {"bearer": "Authorization: Bearer", "header": credential.header}
    return [
        credential.id,
        cell(credential.name),
        credential.kind,
        cell(used.get(credential.kind, credential.token_url) or ""),
        credential.rotated_at or "never",
        credential.created_at,
        credential.created_by,
    ]
