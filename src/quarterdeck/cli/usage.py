"""`qd usage`."""

from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, day
from quarterdeck.cli.output import Column, cell, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from quarterdeck.client import Client


class GroupBy(StrEnum):
    DAY = "day"
    SESSION = "session"
    MODEL = "model"
    API_KEY = "api-key"


def usage(
    by: Annotated[GroupBy, typer.Option("--by", metavar="GROUP", help="day, session, model or api-key.")] = GroupBy.DAY,
    from_: Annotated[
        date | None,
        typer.Option("--from", parser=day, metavar="DATE", help="First day (UTC). Default: the last 30 days."),
    ] = None,
    to: Annotated[
        date | None, typer.Option("--to", parser=day, metavar="DATE", help="Day after the last one (UTC).")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens and cost by day, session, model or API key."""
    group_by: Any = by.value.replace("-", "_")
    with open_client(profile) as client:
        found = client.get_usage(
            group_by=group_by,
            from_=None if from_ is None else from_.isoformat(),
            to=None if to is None else to.isoformat(),
        )
        if as_json:
            print_json(found)
            return
        name = _names(client, by)
        rows = [_row(item, name) for item in found.items]
    columns = [Column(each, right=True) for each in ("RUNS", "TOKENS IN", "CACHED", "OUT", "COST")]
    print_table((by.value.upper().replace("-", " "), *columns), rows, empty="No usage in this time.")


def _row(item: Any, name: "Callable[[str], str]") -> list[str]:
    from quarterdeck.cli.action_text import cost_text

    counts = (item.runs, item.input_tokens, item.cached_tokens, item.output_tokens)
    return [name(item.group or ""), *(str(count) for count in counts), cost_text(item.cost_usd)]


def _names(client: "Client", by: GroupBy) -> "Callable[[str], str]":
    """Adds titles and labels to the IDs of a group."""
    if by is GroupBy.SESSION:
        from quarterdeck.cli.actions import Titles
        from quarterdeck.core.ids import parse_id

        titles = Titles(client)

        def titled(group: str) -> str:
            found = parse_id(group)
            return group if found is None else f"{group} {cell(titles.of(found))}".rstrip()

        return titled
    if by is GroupBy.API_KEY:
        from quarterdeck.client import Forbidden

        try:
            labels = {str(key.id): key.label for key in client.iter_api_keys(workspace_id=client.whoami().workspace_id)}
        except Forbidden:
            # Listing keys needs another permission than reading usage.
            labels = {}
        return lambda group: f"{group} {cell(labels.get(group, ''))}".rstrip()
    return lambda group: group
