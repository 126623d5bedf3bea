"""Costs as a table for the terminal and as Markdown, beside those of an earlier measurement if there is one."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.table import Table

from bench.costs.meter import Cost
from bench.costs.stage import Measured


class Result(Struct, frozen=True):
    """The file that `make costs` writes."""

    taken_at: str
    # The load of the minute before: what else the machine was doing.
    load_before: float
    requests: dict[str, Measured]


def read_result(path: Path) -> Result:
    return msgspec.json.decode(path.read_bytes(), type=Result)


def table_of(requests: Mapping[str, Measured]) -> Table:
    table = Table(title="The most expensive single requests", caption="CPU seconds, and peak memory over idle in MiB")
    table.add_column("request")
    for heading in ("answer", "API", "worker", "PostgreSQL"):
        table.add_column(heading, justify="right", no_wrap=True)
    for title, measured in requests.items():
        table.add_row(title, *cells(measured))
    return table


def markdown_of(after: Mapping[str, Measured], before: Mapping[str, Measured] | None = None) -> str:
    """Two rows for each request that was measured before, too."""
    lines = ["| request | | answer | API | worker | PostgreSQL |", "|---|---|---|---|---|---|"]
    for title, measured in after.items():
        earlier = before.get(title) if before is not None else None
        if earlier is None:
            lines.append(f"| {title} | | {' | '.join(cells(measured))} |")
        else:
            lines.append(f"| {title} | before | {' | '.join(cells(earlier))} |")
            lines.append(f"| | after | {' | '.join(cells(measured))} |")
    return "\n".join(lines) + "\n"


def cells(measured: Measured) -> list[str]:
    unfinished = "" if measured.done else ", unfinished"
    costs = measured.costs
    answer = f"{measured.answer}{unfinished}, {measured.seconds:.2f} s"
    return [answer, *(_shown(cost) for cost in (costs.api, costs.worker, costs.postgres))]


def _shown(cost: Cost) -> str:
    return f"{cost.cpu_seconds:.2f} s, {cost.memory_mib:.0f} MiB"
