"""`qd keys`."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from quarterdeck.cli import find
from quarterdeck.cli.arguments import KeyId
from quarterdeck.cli.connection import client_for, connect, open_client
from quarterdeck.cli.options import AsJson, Limit, Permissions, Profile, Yes, confirm, date, duration, expiration, line
from quarterdeck.cli.output import cell, date_text, note, print_json, print_list, say

if TYPE_CHECKING:
    from quarterdeck.client.models import ApiKeyBody, CreatedApiKeyBody

app = typer.Typer(rich_markup_mode=None, help="Manage API keys.")


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List API keys, newest first, including revoked ones."""
    info = connect(profile)
    with client_for(info) as client:
        # This operation requires the workspace header.
        workspace_id = info.workspace or client.get_workspace().id
        print_list(
            client.iter_api_keys(workspace_id=workspace_id),
            limit,
            ("ID", "PREFIX", "LABEL", "PERMISSIONS", "STATE", "EXPIRES", "LAST USED"),
            _row,
            as_json=as_json,
            empty="No API keys.",
        )


@app.command()
def create(
    label: Annotated[str, typer.Option(parser=line, metavar="LABEL", help="Label of the key.")],
    permission: Permissions,
    expires_at: Annotated[
        datetime | None, typer.Option(parser=date, metavar="TIME", help="Expiration date. Default: never.")
    ] = None,
    expires_in: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Lifetime of the key, such as 30d.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print its secret. The secret is shown only once."""
    expires_at = expiration(expires_at, expires_in)
    with open_client(profile) as client:
        _show_secret(client.create_api_key(label=label, permissions=permission, expires_at=expires_at), as_json=as_json)


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long the old secret keeps working. Default: 1d."),
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a new secret for a key. Label, permissions and expiration stay the same."""
    info = connect(profile)
    with client_for(info) as client:
        overlap = timedelta(days=1) if overlap is None else overlap
        found_id = find.key_id(client, key_id, info.workspace)
        created = client.rotate_api_key(found_id, overlap_seconds=int(overlap.total_seconds()))
    _show_secret(created, as_json=as_json)


@app.command()
def revoke(key_id: KeyId, yes: Yes = False, profile: Profile = None, as_json: AsJson = False) -> None:
    """Revoke a key and the session tokens created with it. This can't be undone."""
    info = connect(profile)
    with client_for(info) as client:
        found_id = find.key_id(client, key_id, info.workspace)
        if not yes:
            found = client.get_api_key(found_id)
            confirm(f"Revoke {found.prefix}… ({found.label})?", yes=yes)
        revoked = client.revoke_api_key(found_id)
    if as_json:
        print_json(revoked)
    else:
        say(f"revoked {revoked.prefix}… ({revoked.label})")


def _show_secret(created: "CreatedApiKeyBody", *, as_json: bool) -> None:
    if as_json:
        print_json(created)
    else:
        say(f"key {created.id}\nsecret {created.secret}")
    note("Save the secret now. It is shown only once.")


def _row(key: "ApiKeyBody") -> list[str]:
    return [
        str(key.id),
        key.prefix,
        cell(key.label),
        " ".join(key.permissions),
        _state(key),
        date_text(key.expires_at) or "never",
        date_text(key.last_used_at) or "never",
    ]


def _state(key: "ApiKeyBody") -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "active"
