"""`make costs`: what the most expensive single requests cost in processor time and memory."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.case import BenchError, Ground
from bench.costs.report import Result, cells, markdown_of, read_result, table_of
from bench.costs.requests import REQUESTS, ExpensiveRequest
from bench.costs.stage import Measured, open_stage
from bench.report import RESULTS
from bench.run import make_console
from quarterdeck.server import embedded_postgres

RESULT = RESULTS / "costs.json"


def main() -> None:
    options = _options()
    console = make_console()
    requests = [one for one in REQUESTS if options.only.lower() in one.title.lower()]
    if not requests:
        sys.exit(f"No request has {options.only!r} in its title.")
    load_before = os.getloadavg()[0]
    measured = _measure(console, requests)
    _write(Result(f"{datetime.now(UTC):%Y-%m-%d %H:%M}", round(load_before, 2), measured))
    before = read_result(options.before).requests if options.before else None
    if options.markdown:
        options.markdown.write_text(markdown_of(measured, before))
    console.print(table_of(measured))
    console.print(f"Load before: {load_before:.2f}. Written to {RESULT}.")
    sys.exit(len(measured) < len(requests))


def _write(result: Result) -> None:
    RESULTS.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def _measure(console: Console, requests: Sequence[ExpensiveRequest]) -> dict[str, Measured]:
    """With a PostgreSQL of its own, in a folder that is gone afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    measured: dict[str, Measured] = {}
    with (
        tempfile.TemporaryDirectory(prefix="qd-costs-") as folder,
        embedded_postgres.running(Path(folder)) as url,
        Progress(*columns, console=console) as progress,
    ):
        bar = progress.add_task("", total=len(requests))
        ground = Ground(url, Path(folder), progress.console.print)
        for one in requests:
            progress.update(bar, description=one.title)
            try:
                measured[one.title] = uvloop.run(_measure_one(ground, one))
            except (AssertionError, BenchError) as fault:
                console.print(f"{one.title}: {fault}", style="red")
                continue
            progress.advance(bar)
            if not console.is_terminal:
                console.print(one.title, *cells(measured[one.title]), sep=" | ")
    return measured


async def _measure_one(ground: Ground, one: ExpensiveRequest) -> Measured:
    """With new processes and a new database: memory that an earlier request left behind would hide the growth."""
    async with open_stage(ground) as stage:
        await one.send(stage)
        assert stage.result is not None, "`send` measures once"
        return stage.result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make costs", description="ARGS=… passes options on.")
    parser.add_argument("--only", default="", metavar="WORDS", help="requests with these words in their title")
    parser.add_argument("--before", type=Path, metavar="FILE", help="an earlier result, to be shown beside this one")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
