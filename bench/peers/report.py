"""The outcome as tables for the person who waits, as JSON for whoever compares, and as a picture."""

import os
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.table import Table

from bench.peers import picture
from bench.peers.outcome import (
    Outcome,
    Round,
    accepted_per_second,
    bare_commit_ms,
    median_ms,
    p99_ms,
    processor_ms,
    ratio,
)
from bench.peers.verdicts import Verdict

RESULTS = Path(__file__).parent.parent / "results"
# With the decimals that they are shown with.
_FIGURES = ((accepted_per_second, 0), (median_ms, 2), (p99_ms, 2), (processor_ms, 2), (bare_commit_ms, 2))
_COLOURS = {Verdict.YES: "green", Verdict.NO: "red", Verdict.NOT_OFFERED: "yellow", Verdict.NOT_TESTED: "yellow"}


def tables(outcomes: Sequence[Outcome]) -> list[Table]:
    return [_figures(outcomes), _findings(outcomes), _settings(outcomes)]


def _figures(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="A person's turn is accepted: 64 connections and 1; median of the rounds, least to most")
    table.add_column("system")
    for heading in (
        "turns/s of 64",
        "of ours",
        "median ms of 1",
        "p99 ms of 1",
        "CPU ms a turn",
        "bare commit ms",
        "refused",
    ):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        rate, median, p99, cpu, commit = (_cell(outcome, figure, digits) for figure, digits in _FIGURES)
        share = ratio(outcomes[0], outcome, accepted_per_second)
        refused = sum(one.crowded.refused + one.crowded.lost + one.alone.refused for one in outcome.rounds)
        name = f"{outcome.name} {outcome.version}"
        table.add_row(name, rate, "" if share is None else f"{share:.2f}", median, p99, cpu, commit, str(refused))
    return table


def _findings(outcomes: Sequence[Outcome]) -> Table:
    table = Table("system", "property", "", "evidence", title="What was tried", show_lines=True)
    for outcome in outcomes:
        for name, finding in outcome.findings.items():
            verdict = f"[{_COLOURS[finding.verdict]}]{finding.verdict}[/]"
            table.add_row(outcome.name, name, verdict, finding.evidence)
        if outcome.failure:
            table.add_row(outcome.name, "", "[red]broke off[/]", escape(outcome.failure))
    return table


def _settings(outcomes: Sequence[Outcome]) -> Table:
    table = Table("system", "request", "setting", "not the same", title="What is compared", show_lines=True)
    for outcome in outcomes:
        table.add_row(outcome.name, outcome.request, outcome.setting, outcome.differs)
    return table


def _cell(outcome: Outcome, figure: Callable[[Round], float], digits: int) -> str:
    if not outcome.rounds:
        return "not measured"
    least, most = outcome.spread(figure)
    return f"{outcome.typical(figure):,.{digits}f} ({least:,.{digits}f}-{most:,.{digits}f})"


def write(outcomes: Sequence[Outcome], took_seconds: float, load_before: float) -> None:
    result = {
        "taken_at": datetime.now(UTC),
        "took_seconds": round(took_seconds, 1),
        "machine": {
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            # The load of the minute before: what else the machine was doing.
            "load_before": round(load_before, 2),
        },
        "systems": outcomes,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    title = f"A turn is accepted, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}"
    (RESULTS / "peers.svg").write_text(picture.draw([one for one in outcomes if one.rounds], title))
