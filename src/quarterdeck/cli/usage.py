"""`qd usage`."""

from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, day
from quarterdeck.cli.output import Column, cell, print_json, print_table

if TYPE_CHECKING:
    from quarterdeck.client.models import UsageItem


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
    columns = [Column(each, right=True) for each in ("RUNS", "TOKENS IN", "CACHED", "OUT", "COST")]
    first = by.value.upper().replace("-", " ")
    print_table((first, *columns), map(_row, found.items), empty="No usage in this time.")


def _row(item: "UsageItem") -> list[str]:
    from quarterdeck.cli.action_text import cost_text

    group = f"{item.group or 'unknown'} {cell(item.label or '')}".rstrip()
    counts = (item.runs, item.input_tokens, item.cached_tokens, item.output_tokens)
    return [group, *(str(count) for count in counts), cost_text(item.cost_usd)]
