"""`qd usage`, `models`, `retention` and `audit`: about the whole workspace."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from quarterdeck.cli import find
from quarterdeck.cli.commands import with_client
from quarterdeck.cli.options import FromDay, Limit, ToDay, Yes, choice, confirm, date, duration, flag, line, option
from quarterdeck.cli.output import Page, Result, actor_name, cell, cost_text, note, print_table
from quarterdeck.client import Client
from quarterdeck.client.models import AuditEventBody, ModelList, RetentionDays, SetRetention, UsageItem

_GROUPS = ("day", "session", "model", "api-key")


@with_client
def usage(
    client: Client,
    by: Annotated[str, choice("GROUP", "day, session, model or api-key.", values=_GROUPS)] = "day",
    from_: FromDay = None,
    to: ToDay = None,
) -> Result:
    """Show tokens and cost by day, session, model or API key."""
    group_by: Any = by.replace("-", "_")
    found = client.get_usage(group_by=group_by, from_=from_, to=to)
    columns = (by.upper().replace("-", " "), ">RUNS", ">TOKENS IN", ">CACHED", ">WRITTEN", ">OUT", ">COST")
    return Result(found, lambda: print_table(columns, map(_usage_row, found.items), empty="No usage in this time."))


def _usage_row(one: UsageItem) -> list[object]:
    group = f"{one.group or 'unknown'} {cell(one.label or '')}".rstrip()
    tokens = (one.input_tokens, one.cached_tokens, one.cache_write_tokens, one.output_tokens)
    return [group, one.runs, *tokens, cost_text(one.cost_usd)]


@with_client
def models(client: Client) -> Result:
    """List the models that sessions can use."""
    found = client.list_models()
    return Result(found, lambda: _print_models(found))


def _print_models(found: ModelList) -> None:
    rows = ([one.model, one.provider, one.model == found.default] for one in found.items)
    print_table(("MODEL", "PROVIDER", "DEFAULT"), rows, empty="No models.")
    others = [f"{provider}:NAME" for provider in found.providers if provider != "demo"]
    if others:
        note(f"Other models can be used as {' or '.join(others)}.")


# The words of this command, by the fields of the API.
KINDS = {
    "run_days": "runs",
    "event_days": "events",
    "file_days": "files",
    "receipt_days": "receipts",
    "audit_days": "audit",
    "delivery_days": "deliveries",
    "usage_days": "usage",
}
_FIELDS = {kind: field for field, kind in KINDS.items()}
_DEFAULT = "default"

Kept = Annotated[
    list[str] | None,
    option(
        "KIND=DAYS",
        f"Days to keep one kind of data, or {_DEFAULT}. Kinds: {', '.join(_FIELDS)}. Can be repeated.",
        "--set",
    ),
]


@with_client
def retention(client: Client, set_: Kept = None, yes: Yes = False) -> Result:
    """Show or set how many days the data of the workspace is kept."""
    change = parse_retention(set_ or [])
    if change:
        confirm("Older data is deleted within about an hour. This can't be undone. Continue?", yes=yes)
    found = client.change_workspace(retention=SetRetention(**change)) if change else client.get_workspace()
    record = {"retention": found.retention, "effective_retention": found.effective_retention}
    return Result(record, lambda: _print_retention(found.retention, found.effective_retention))


def _print_retention(own: RetentionDays, effective: RetentionDays) -> None:
    days = {field: getattr(effective, field) for field in KINDS}
    rows = [
        (kind, "forever" if days[field] is None else days[field], _source(own, effective, field))
        for field, kind in KINDS.items()
    ]
    print_table(("KIND", ">DAYS", "SET BY"), rows, empty="")


def parse_retention(given: list[str]) -> dict[str, Any]:
    """From `KIND=DAYS` to the fields of the API. None: the default of the server."""
    change: dict[str, Any] = {}
    for item in given:
        kind, _, days = item.partition("=")
        if kind not in _FIELDS:
            raise typer.BadParameter(f"{item!r} is not KIND=DAYS. Kinds: {', '.join(_FIELDS)}.")
        if days != _DEFAULT and not (days.isascii() and days.isdigit() and 0 < int(days[:9]) <= 3650):
            raise typer.BadParameter(f"{item!r}: days are a number from 1 to 3650, or {_DEFAULT}.")
        change[_FIELDS[kind]] = None if days == _DEFAULT else int(days)
    return change


def _source(own: RetentionDays, effective: RetentionDays, field: str) -> str:
    days = getattr(effective, field)
    if days is not None and days == getattr(own, field):
        return "workspace"
    # Events do not outlive their run.
    return "runs" if field == "event_days" and days is not None and days == effective.run_days else "server"


_TYPES = ("api_key", "member", "run", "session", "session_token", "skill", "skill_version", "webhook", "workspace")


def _moment(given: str) -> datetime:
    """A date, or a time before now such as 7d."""
    for parse in (date, lambda given: datetime.now(UTC) - duration(given)):
        with suppress(typer.BadParameter, OverflowError):
            return parse(given)
    raise typer.BadParameter(f"{given!r} is not a date such as 2027-01-31, or a duration such as 12h or 7d")


@with_client
def audit(
    client: Client,
    action: Annotated[str | None, option("ACTION", "Only this action, such as create_api_key.", parser=line)] = None,
    type_: Annotated[
        str | None, choice("TYPE", f"Only objects of this type: {', '.join(_TYPES)}.", "--type", values=_TYPES)
    ] = None,
    object_: Annotated[str | None, option("OBJECT", "Only this object: ID, ID prefix or name.", "--object")] = None,
    user: Annotated[str | None, option("USER", "Only changes by this user: ID or email.")] = None,
    since: Annotated[
        datetime | None, option("TIME", "From this time on: a date, or 7d for a week.", parser=_moment)
    ] = None,
    until: Annotated[datetime | None, option("TIME", "Before this time: a date, or 1d.", parser=_moment)] = None,
    oldest_first: Annotated[bool, flag("--oldest-first", "List the oldest first.")] = False,
    limit: Limit = 50,
) -> Page[AuditEventBody]:
    """List changes: who did what, and when. Newest first."""
    filters: dict[str, Any] = {"object_type": type_, "order": "asc" if oldest_first else None}
    found = client.iter_audit_events(
        action=action,
        object_id=None if object_ is None else find.audited_id(client, object_, type_),
        user_id=None if user is None else find.user_id(client, user),
        since=since,
        until=until,
        limit=min(limit, 200),
        **filters,
    )
    return Page(found, limit, ("TIME", "ACTION", "TYPE", "OBJECT", "BY", "ADDRESS"), _audit_row, "No audit events.")


def _audit_row(one: AuditEventBody) -> list[object]:
    # The name is in the answers of newer servers only.
    name: str | None = getattr(one, "object_name", None)
    object_ = f"{one.object_id} {cell(name)}" if name else one.object_id
    actor = "operator" if one.actor is None else actor_name(one.actor)
    return [one.created_at, one.action, one.object_type, object_, actor, one.address]
