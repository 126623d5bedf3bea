"""The outcome as tables for the person who waits, as JSON for whoever compares, and as a picture."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table

from bench.peers import picture
from bench.peers.outcome import Outcome, Round, accepted_per_second, median_ms, p99_ms
from bench.peers.verdicts import Verdict

RESULTS = Path(__file__).parent.parent / "results"
# With the decimals that they are shown with.
_FIGURES = ((accepted_per_second, 0), (median_ms, 2), (p99_ms, 2))
_COLOURS = {Verdict.YES: "green", Verdict.NO: "red", Verdict.NOT_OFFERED: "yellow"}


def tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    figures = Table(title="A person's turn is accepted: median of the rounds, least to most")
    for heading in ("system", "turns/s, 64 connections", "median ms, 1 connection", "p99 ms, 1 connection", "refused"):
        figures.add_column(heading, justify="left" if heading == "system" else "right")
    for outcome in outcomes:
        cells = [_cell(outcome, figure, digits) for figure, digits in _FIGURES]
        refused = sum(one.crowded.refused + one.crowded.lost + one.alone.refused for one in outcome.rounds)
        figures.add_row(f"{outcome.name} {outcome.version}", *cells, str(refused) if outcome.rounds else "")
    yield figures
    found = Table(title="What was tried", show_lines=True)
    for heading in ("system", "property", "", "evidence"):
        found.add_column(heading)
    for outcome in outcomes:
        for name, finding in outcome.findings.items():
            verdict = f"[{_COLOURS[finding.verdict]}]{finding.verdict}[/]"
            found.add_row(outcome.name, name, verdict, finding.evidence)
        if outcome.failure:
            found.add_row(outcome.name, "", "[red]broke off[/]", outcome.failure)
    yield found
    same = Table(title="What is compared", show_lines=True)
    for heading in ("system", "request", "setting", "not the same"):
        same.add_column(heading)
    for outcome in outcomes:
        same.add_row(outcome.name, outcome.request, outcome.setting, outcome.differs)
    yield same


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
            # Of the minute before: what else the machine was doing.
            "load_before": round(load_before, 2),
        },
        "systems": outcomes,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    title = f"A turn is accepted, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}"
    (RESULTS / "peers.svg").write_text(picture.draw([one for one in outcomes if one.rounds], title))
