"""`qd keys` and `qd tokens`: the credentials of callers."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.options import (
    Limit,
    Permissions,
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
    overlap_seconds,
)
from quarterdeck.cli.output import Page, Result, cell, date_text
from quarterdeck.client import Client
from quarterdeck.client.models import ApiKeyBody, CreatedApiKeyBody, SessionTokenBody

app = typer.Typer(rich_markup_mode=None)
tokens_app = typer.Typer(rich_markup_mode=None)

KeyId = Annotated[str, argument("KEY", "ID, ID prefix or label of the key.", complete=completion.keys)]


@command(app, "list")
def list_(client: Client, limit: Limit = 50) -> Page[ApiKeyBody]:
    """List API keys, newest first, including revoked ones."""
    # This operation requires the workspace header.
    found = client.iter_api_keys(workspace_id=client.whoami().workspace_id)
    columns = ("ID", "PREFIX", "LABEL", "PERMISSIONS", "STATE", "EXPIRES", "LAST USED")
    return Page(found, limit, columns, _row, "No API keys.")


@command(app)
def create(
    client: Client,
    label: Annotated[str, option("LABEL", "Label of the key.", parser=line)],
    permission: Permissions,
    expires_at: Annotated[datetime | None, option("TIME", "Expiration date. Default: never.", parser=date)] = None,
    expires_in: Annotated[
        timedelta | None, option("DURATION", "Lifetime of the key, such as 30d.", parser=duration)
    ] = None,
) -> Result:
    """Create an API key and print its secret. The secret is shown only once."""
    expires = expiration(expires_at, expires_in)
    return _secret(client.create_api_key(label=label, permissions=permission, expires_at=expires))


@command(app)
def rotate(
    client: Client,
    key_id: KeyId,
    overlap: Annotated[
        timedelta | None, option("DURATION", "How long the old secret keeps working. Default: 1d.", parser=duration)
    ] = None,
) -> Result:
    """Create a new secret for a key. Label, permissions and expiration stay the same."""
    found_id = find.key_id(client, key_id)
    return _secret(client.rotate_api_key(found_id, overlap_seconds=overlap_seconds(overlap)))


@command(app)
def revoke(client: Client, key_id: KeyId, yes: Yes = False) -> Result:
    """Revoke a key and the session tokens created with it. This can't be undone."""
    found_id = find.key_id(client, key_id)
    confirm(lambda: f"Revoke {_name(client.get_api_key(found_id))}?", yes=yes)
    revoked = client.revoke_api_key(found_id)
    return Result(revoked, f"revoked {_name(revoked)}")


@command(tokens_app, "list")
def list_tokens(client: Client, session_id: SessionId, limit: Limit = 50) -> Page[SessionTokenBody]:
    """List the tokens of a session, newest first. Includes revoked and expired ones."""
    found = client.iter_session_tokens(find.session_id(client, session_id))
    columns = ("ID", "PREFIX", "LABEL", "STATE", "MAY RESOLVE", "EXPIRES", "CREATED", "BY")
    return Page(found, limit, columns, _token_row, "No tokens.")


@command(tokens_app, "create")
def create_token(
    client: Client,
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
) -> Result:
    """Create a token for a session and print it. It is shown only once."""
    expires = expiration(expires_at, expires_in)
    found_id = find.session_id(client, session_id)
    created = client.create_session_token(found_id, expires_at=expires, label=label, may_resolve=may_resolve)
    text = f"id {created.id}\ntoken {created.token}\nexpires {date_text(created.expires_at)}"
    return Result(created, text, hint="Save the token now. It is shown only once.")


@command(tokens_app, "revoke")
def revoke_token(
    client: Client,
    session_id: SessionId,
    token: Annotated[str, argument("TOKEN", "ID or ID prefix of the token.", complete=completion.tokens)],
    yes: Yes = False,
) -> Result:
    """Revoke a token. This can't be undone."""
    found_id = find.session_id(client, session_id)
    found_token = find.token_id(client, found_id, token)
    confirm(f"Revoke the token {found_token}?", yes=yes)
    revoked = client.revoke_session_token(found_id, found_token)
    return Result(revoked, f"revoked {revoked.prefix}…")


def _secret(created: CreatedApiKeyBody) -> Result:
    text = f"key {created.id}\nsecret {created.secret}"
    return Result(created, text, hint="Save the secret now. It is shown only once.")


def _name(key: ApiKeyBody) -> str:
    return f"{key.prefix}… ({key.label})"


def _row(one: ApiKeyBody) -> list[object]:
    expires, last_used = one.expires_at or "never", one.last_used_at or "never"
    return [one.id, one.prefix, cell(one.label), " ".join(one.permissions), _state(one), expires, last_used]


def _token_row(one: SessionTokenBody) -> list[object]:
    label, state = cell(one.label or ""), _state(one)
    return [one.id, one.prefix, label, state, one.may_resolve, one.expires_at, one.created_at, one.created_by]


def _state(one: ApiKeyBody | SessionTokenBody) -> str:
    if one.revoked_at is not None:
        return "revoked"
    return "expired" if one.expires_at is not None and one.expires_at <= datetime.now(UTC) else "active"
