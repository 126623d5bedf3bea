"""`qd audit`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, date, duration, line, uuid
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


def _moment(text: str) -> datetime:
    """A date, or a time before now such as 7d."""
    return date(text) if "-" in text else datetime.now(UTC) - duration(text)


def _type(text: str) -> str:
    if text not in _TYPES:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_TYPES)}")
    return text


def audit(
    action: Annotated[
        str | None, typer.Option(parser=line, metavar="ACTION", help="Only this action, such as create_api_key.")
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option("--type", parser=_type, metavar="TYPE", help=f"Only objects of this type: {', '.join(_TYPES)}."),
    ] = None,
    object_: Annotated[
        UUID | None, typer.Option("--object", parser=uuid, metavar="ID", help="Only the object with this ID.")
    ] = None,
    user: Annotated[
        UUID | None, typer.Option("--user", parser=uuid, metavar="ID", help="Only changes by this user.")
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
            object_id=object_,
            user_id=user,
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
