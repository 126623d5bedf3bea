"""`qd keys` and `qd tokens`: the credentials of callers."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import client_for, connect, open_client
from quarterdeck.cli.options import (
    AsJson,
    Limit,
    Permissions,
    Profile,
    SessionId,
    Yes,
    argument,
    confirm,
    date,
    duration,
    expiration,
    flag,
    line,
    option,
)
from quarterdeck.cli.output import cell, date_text, note, print_list, print_result
from quarterdeck.client.models import ApiKeyBody, CreatedApiKeyBody, SessionTokenBody

app = typer.Typer(rich_markup_mode=None, help="Manage API keys.")

KeyId = Annotated[str, argument("KEY", "ID, ID prefix or label of the key.", complete=completion.keys)]


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List API keys, newest first, including revoked ones."""
    info = connect(profile)
    with client_for(info) as client:
        # This operation requires the workspace header.
        workspace_id = info.workspace or client.get_workspace().id
        print_list(
            client.iter_api_keys(workspace_id=workspace_id),
            ("ID", "PREFIX", "LABEL", "PERMISSIONS", "STATE", "EXPIRES", "LAST USED"),
            _row,
            "No API keys.",
            limit,
            as_json=as_json,
        )


@app.command()
def create(
    label: Annotated[str, option("LABEL", "Label of the key.", parser=line)],
    permission: Permissions,
    expires_at: Annotated[datetime | None, option("TIME", "Expiration date. Default: never.", parser=date)] = None,
    expires_in: Annotated[
        timedelta | None, option("DURATION", "Lifetime of the key, such as 30d.", parser=duration)
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
        timedelta | None, option("DURATION", "How long the old secret keeps working. Default: 1d.", parser=duration)
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
    print_result(revoked, f"revoked {revoked.prefix}… ({revoked.label})", as_json=as_json)


def _show_secret(created: CreatedApiKeyBody, *, as_json: bool) -> None:
    print_result(created, f"key {created.id}\nsecret {created.secret}", as_json=as_json)
    note("Save the secret now. It is shown only once.")


def _row(key: ApiKeyBody) -> list[object]:
    return [
        key.id,
        key.prefix,
        cell(key.label),
        " ".join(key.permissions),
        _state(key),
        key.expires_at or "never",
        key.last_used_at or "never",
    ]


def _state(key: ApiKeyBody) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "active"


tokens_app = typer.Typer(rich_markup_mode=None, help="Manage session tokens, which work in one session only.")


@tokens_app.command("list")
def list_tokens(session_id: SessionId, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the tokens of a session, newest first. Includes revoked and expired ones."""
    with open_client(profile) as client:
        print_list(
            client.iter_session_tokens(find.session_id(client, session_id)),
            ("ID", "PREFIX", "LABEL", "STATE", "MAY RESOLVE", "EXPIRES", "CREATED", "BY"),
            _token_row,
            "No tokens.",
            limit,
            as_json=as_json,
        )


@tokens_app.command("create")
def create_token(
    session_id: SessionId,
    expires_at: Annotated[
        datetime | None, option("TIME", "Expiration date. Default: set by the server.", parser=date)
    ] = None,
    expires_in: Annotated[
        timedelta | None, option("DURATION", "Lifetime of the token, such as 12h.", parser=duration)
    ] = None,
    label: Annotated[str | None, option("LABEL", "Name of the token in the log of the session.", parser=line)] = None,
    may_resolve: Annotated[
        bool, flag("--may-resolve", "The token may list and answer the actions of the session.")
    ] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a token for a session and print it. It is shown only once."""
    expires_at = expiration(expires_at, expires_in)
    with open_client(profile) as client:
        created = client.create_session_token(
            find.session_id(client, session_id), expires_at=expires_at, label=label, may_resolve=may_resolve
        )
    print_result(
        created, f"id {created.id}\ntoken {created.token}\nexpires {date_text(created.expires_at)}", as_json=as_json
    )
    note("Save the token now. It is shown only once.")


@tokens_app.command("revoke")
def revoke_token(
    session_id: SessionId,
    token: Annotated[str, argument("TOKEN", "ID or ID prefix of the token.", complete=completion.tokens)],
    yes: Yes = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token. This can't be undone."""
    with open_client(profile) as client:
        found_id = find.session_id(client, session_id)
        found_token = find.token_id(client, found_id, token)
        confirm(f"Revoke the token {found_token}?", yes=yes)
        revoked = client.revoke_session_token(found_id, found_token)
    print_result(revoked, f"revoked {revoked.prefix}…", as_json=as_json)


def _token_row(token: SessionTokenBody) -> list[object]:
    return [
        token.id,
        token.prefix,
        cell(token.label or ""),
        _token_state(token),
        token.may_resolve,
        token.expires_at,
        token.created_at,
        token.created_by,
    ]


def _token_state(token: SessionTokenBody) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at <= datetime.now(UTC) else "active"
