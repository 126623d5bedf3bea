"""`qd audit`."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, date, duration, line, text
from quarterdeck.cli.output import actor_name, cell, date_text, print_list

if TYPE_CHECKING:
    from quarterdeck.client.models import AuditEventBody

_TYPES = (
    "api_key",
    "member",
    "run",
    "session",
    "session_token",
    "skill",
    "skill_version",
    "webhook",
    "workspace",
)


def _moment(given: str) -> datetime:
    """A date, or a time before now such as 7d."""
    for parse in (date, lambda given: datetime.now(UTC) - duration(given)):
        with suppress(typer.BadParameter, OverflowError):
            return parse(given)
    raise typer.BadParameter(f"{given!r} is not a date such as 2027-01-31, or a duration such as 12h or 7d")


def _type(given: str) -> str:
    if given not in _TYPES:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(_TYPES)}")
    return given


def audit(
    action: Annotated[
        str | None, typer.Option(parser=line, metavar="ACTION", help="Only this action, such as create_api_key.")
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type",
            parser=_type,
            metavar="TYPE",
            help=f"Only objects of this type: {', '.join(_TYPES)}.",
            autocompletion=completion.one_of(_TYPES),
        ),
    ] = None,
    object_: Annotated[
        str | None,
        typer.Option("--object", parser=text, metavar="OBJECT", help="Only this object: ID, ID prefix or name."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", parser=text, metavar="USER", help="Only changes by this user: ID or email.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=_moment, metavar="TIME", help="From this time on: a date, or 7d for a week."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(parser=_moment, metavar="TIME", help="Before this time: a date, or 1d.")
    ] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="List the oldest first.")] = False,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List changes: who did what, and when. Newest first."""
    filters: dict[str, Any] = {"object_type": type_, "order": "asc" if oldest_first else None}
    with open_client(profile) as client:
        found = client.iter_audit_events(
            action=action,
            object_id=None if object_ is None else find.audited_id(client, object_, type_),
            user_id=None if user is None else find.user_id(client, user),
            since=since,
            until=until,
            page_size=min(limit, 200),
            **filters,
        )
        print_list(
            found,
            limit,
            ("TIME", "ACTION", "TYPE", "OBJECT", "BY", "ADDRESS"),
            _row,
            as_json=as_json,
            empty="No audit events.",
        )


def _row(event: "AuditEventBody") -> list[str]:
    return [
        date_text(event.created_at),
        event.action,
        event.object_type,
        _object(event),
        "operator" if event.actor is None else actor_name(event.actor),
        event.address or "",
    ]


def _object(event: "AuditEventBody") -> str:
    # The name is in the answers of newer servers only.
    name: str | None = getattr(event, "object_name", None)
    return f"{event.object_id} {cell(name)}" if name else str(event.object_id)
