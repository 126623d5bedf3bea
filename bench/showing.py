"""Outcomes for the person who waits, and for whoever compares."""

from collections.abc import Iterable
from statistics import median
from typing import Any

from rich.table import Table

from bench.case import Reach
from bench.outcome import Outcome

_MET = {None: "", True: "yes", False: "no"}


def table_of(outcomes: Iterable[Outcome]) -> Table:
    table = Table(title="Quarterdeck bench", caption="ratios are medians of rounds, with the lowest and the highest")
    for heading in ("case", "measured against"):
        table.add_column(heading)
    for heading in ("ceiling", "us", "result", "spread", "reach", "met"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        colour = {None: "", True: "green", False: "red"}[outcome.met]
        table.add_row(*_row(outcome), style="yellow" if outcome.fault else colour)
    return table


def _row(outcome: Outcome) -> list[str]:
    reach = shown_reach(outcome.reach, outcome.unit if not outcome.against else "×")
    if outcome.fault is not None:
        return [outcome.title, outcome.fault, "", "", "not measured", "", reach, _MET[outcome.met]]
    ceiling = shown(median(outcome.ceiling), outcome.unit) if outcome.is_ratio else ""
    low, high = outcome.spread
    return [
        outcome.title,
        outcome.against,
        ceiling,
        shown(median(outcome.us), outcome.unit),
        shown(outcome.result, outcome.result_unit),
        f"{shown(low)}–{shown(high)}",
        reach,
        _MET[outcome.met] + ("" if outcome.is_unanimous else "?"),
    ]


def shown(value: float, unit: str = "") -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f} {unit}".strip()


def shown_reach(reach: Reach | None, unit: str) -> str:
    return "" if reach is None else f"{'≥' if reach.more_is_better else '≤'} {reach.bound:g} {unit}"


def plain(outcome: Outcome) -> dict[str, Any]:
    """For JSON: what was measured, and what follows from it."""
    found: dict[str, Any] = {
        "name": outcome.name,
        "title": outcome.title,
        "against": outcome.against or None,
        "unit": outcome.unit,
        "reach": shown_reach(outcome.reach, outcome.result_unit) or None,
        "met": outcome.met,
    }
    if outcome.fault is not None:
        return found | {"fault": outcome.fault}
    return found | {
        "result": outcome.result,
        "result_unit": outcome.result_unit,
        "spread": outcome.spread,
        "us": outcome.us,
        "ceiling": outcome.ceiling,
        "notes": outcome.notes,
    }
