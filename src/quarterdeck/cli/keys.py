"""`qd keys`: the API keys of the workspace."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from quarterdeck.cli.connection import client_of, connect, open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, duration, line, moment, uuid
from quarterdeck.cli.output import note, print_json, print_list, say, when
from quarterdeck.core.actors import Permission

if TYPE_CHECKING:
    from quarterdeck.api_keys.model import ApiKeyBody, CreatedApiKeyBody

app = typer.Typer(rich_markup_mode=None, help="Manage the API keys of the workspace.")

KeyId = Annotated[UUID, typer.Argument(parser=uuid, metavar="ID", help="Id of the key.")]


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the keys, newest first. Revoked ones are listed too."""
    info = connect(profile)
    with client_of(info) as client:
        # This list alone must be told whose it is.
        workspace_id = info.workspace or client.get_workspace().id
        print_list(
            client.iter_api_keys(workspace_id=workspace_id),
            limit,
            ("ID", "PREFIX", "LABEL", "PERMISSIONS", "STATE", "EXPIRES", "LAST USED"),
            _row,
            as_json=as_json,
            empty="There are no keys.",
        )


@app.command()
def create(
    label: Annotated[str, typer.Option(parser=line, metavar="LABEL", help="What people call it.")],
    permission: Annotated[list[Permission], typer.Option(help="Give it once for each permission.")],
    expires_at: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="When it ends; never by default.")
    ] = None,
    expires_in: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="30d", help="After how long it ends.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret, which is shown only now."""
    if expires_in is not None:
        if expires_at is not None:
            raise typer.BadParameter("--expires-at and --expires-in contradict each other")
        expires_at = datetime.now(UTC) + expires_in
    with open_client(profile) as client:
        _show_secret(client.create_api_key(label=label, permissions=permission, expires_at=expires_at), as_json=as_json)


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="1d", help="How long the old secret goes on working. Default: a day."),
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Replace a key by one with the same label, permissions and end, and print the new secret."""
    with open_client(profile) as client:
        overlap = timedelta(days=1) if overlap is None else overlap
        created = client.rotate_api_key(key_id, overlap_seconds=int(overlap.total_seconds()))
    _show_secret(created, as_json=as_json)


@app.command()
def revoke(key_id: KeyId, yes: Yes = False, profile: Profile = None, as_json: AsJson = False) -> None:
    """End a key, and with it the session tokens that it made. At once, and for good."""
    with open_client(profile) as client:
        if not yes:
            found = client.get_api_key(key_id)
            confirm(f"Revoke {found.prefix}… ({found.label})?", yes=yes)
        revoked = client.revoke_api_key(key_id)
    if as_json:
        print_json(revoked)
    else:
        say(f"revoked {revoked.prefix}… ({revoked.label})")


def _show_secret(created: "CreatedApiKeyBody", *, as_json: bool) -> None:
    if as_json:
        print_json(created)
    else:
        say(f"key {created.id}\nsecret {created.secret}")
    note("Keep the secret: it is shown only this once.")


def _row(key: "ApiKeyBody") -> list[str]:
    return [
        str(key.id),
        key.prefix,
        key.label,
        " ".join(key.permissions),
        _state(key),
        when(key.expires_at) or "never",
        when(key.last_used_at) or "never",
    ]


def _state(key: "ApiKeyBody") -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "active"
