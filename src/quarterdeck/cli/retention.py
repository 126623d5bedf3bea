"""`qd retention`: how long the data of the workspace is kept."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, Yes, confirm
from quarterdeck.cli.output import Column, print_json, print_table

if TYPE_CHECKING:
    from quarterdeck.client.models import RetentionDays

# The words of this command, by the fields of the API.
KINDS = {
    "run_days": "runs",
    "event_days": "events",
    "file_days": "files",
    "receipt_days": "receipts",
    "audit_days": "audit",
    "delivery_days": "deliveries",
    "job_days": "jobs",
    "usage_days": "usage",
}
_FIELDS = {kind: field for field, kind in KINDS.items()}
_DEFAULT = "default"

SetRetention = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KIND=DAYS",
        help=f"Days to keep one kind of data, or {_DEFAULT}. Kinds: {', '.join(_FIELDS)}. Can be repeated.",
    ),
]


def retention(set_: SetRetention = None, yes: Yes = False, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show or set how many days the data of the workspace is kept."""
    change = parse_retention(set_ or [])
    if change:
        confirm("Older data is deleted within about an hour. This can't be undone. Continue?", yes=yes)
    with open_client(profile) as client:
        if change:
            from quarterdeck.client.models import SetRetention as Change

            workspace = client.change_workspace(retention=Change(**change))
        else:
            workspace = client.get_workspace()
    if as_json:
        print_json({"retention": workspace.retention, "effective_retention": workspace.effective_retention})
        return
    own, effective = workspace.retention, workspace.effective_retention
    rows = [[kind, _days(effective, field), _source(own, effective, field)] for field, kind in KINDS.items()]
    print_table(("KIND", Column("DAYS", right=True), "SET BY"), rows, empty="")


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


def _days(retention: "RetentionDays", field: str) -> str:
    days = getattr(retention, field)
    return "forever" if days is None else str(days)


def _source(own: "RetentionDays", effective: "RetentionDays", field: str) -> str:
    days = getattr(effective, field)
    if days is not None and days == getattr(own, field):
        return "workspace"
    # Events do not outlive their run.
    return "runs" if field == "event_days" and days is not None and days == effective.run_days else "server"
