"""`qd tokens`."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from quarterdeck.cli import find
from quarterdeck.cli.arguments import SessionId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, date, duration, line, text
from quarterdeck.cli.output import actor_name, cell, date_text, note, print_json, print_list, say

if TYPE_CHECKING:
    from quarterdeck.client.models import SessionTokenBody

app = typer.Typer(rich_markup_mode=None, help="Manage session tokens, which work in one session only.")


@app.command("list")
def list_(session_id: SessionId, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the tokens of a session, newest first. Includes revoked and expired ones."""
    with open_client(profile) as client:
        print_list(
            client.iter_session_tokens(find.session_id(client, session_id)),
            limit,
            ("ID", "PREFIX", "LABEL", "STATE", "MAY RESOLVE", "EXPIRES", "CREATED", "BY"),
            _row,
            as_json=as_json,
            empty="No tokens.",
        )


@app.command()
def create(
    session_id: SessionId,
    expires_at: Annotated[
        datetime | None, typer.Option(parser=date, metavar="TIME", help="Expiration date. Default: set by the server.")
    ] = None,
    expires_in: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Lifetime of the token, such as 12h.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(parser=line, metavar="LABEL", help="Name of the token in the log of the session.")
    ] = None,
    may_resolve: Annotated[
        bool, typer.Option("--may-resolve", help="The token may list and answer the actions of the session.")
    ] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a token for a session and print it. It is shown only once."""
    if expires_in is not None:
        if expires_at is not None:
            raise UsageError("Use either --expires-at or --expires-in")
        expires_at = datetime.now(UTC) + expires_in
    with open_client(profile) as client:
        created = client.create_session_token(
            find.session_id(client, session_id), expires_at=expires_at, label=label, may_resolve=may_resolve
        )
    if as_json:
        print_json(created)
    else:
        say(f"id {created.id}\ntoken {created.token}\nexpires {date_text(created.expires_at)}")
    note("Save the token now. It is shown only once.")


@app.command()
def revoke(
    session_id: SessionId,
    token: Annotated[str, typer.Argument(parser=text, metavar="TOKEN", help="ID or ID prefix of the token.")],
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
    if as_json:
        print_json(revoked)
    else:
        say(f"revoked {revoked.prefix}…")


def _row(token: "SessionTokenBody") -> list[str]:
    return [
        str(token.id),
        token.prefix,
        cell(token.label or ""),
        _state(token),
        "yes" if token.may_resolve else "",
        date_text(token.expires_at),
        date_text(token.created_at),
        actor_name(token.created_by),
    ]


def _state(token: "SessionTokenBody") -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at <= datetime.now(UTC) else "active"
