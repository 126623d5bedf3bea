"""What commands print: tables for people, JSON for programs. Colour and progress bars are for terminals only, and no
text of other people's can steer a terminal."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer
from msgspec import Struct

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from quarterdeck.core.actors import ActorBody

T = TypeVar("T")

# Controls but line feed and tab, and marks that turn the direction of text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Nothing is wrapped or cut where nobody looks at it.
_ALL_COLUMNS = 100_000


def printable(text: str) -> str:
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str) -> None:
    typer.echo(printable(text))


def note(text: str) -> None:
    """Beside what was asked for: it must not end up in a program that reads the output."""
    typer.echo(printable(text), err=True)


def print_json(record: object) -> None:
    # Where these stand in JSON they stand in a string, and there an escape means the same.
    text = msgspec.json.encode(record).decode()
    print_json_text(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_json_text(text: str) -> None:
    """JSON is UTF-8, whatever the terminal speaks."""
    typer.echo(text.encode())


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _ALL_COLUMNS
    return made


class Column(Struct, frozen=True):
    name: str
    right: bool = False


def print_table(columns: Sequence[str | Column], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for each in columns:
        column = Column(each) if isinstance(each, str) else each
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row))
    if table.row_count:
        # Where it is too wide the terminal wraps it. Squeezed, it would lose its last columns and cut ids.
        _print(table, _ALL_COLUMNS)
    else:
        note(empty)


# States that a reader looks for.
_STYLES = {
    "running": "cyan",
    "queued": "cyan",
    "succeeded": "green",
    "active": "green",
    "failed": "red",
    "cancelled": "yellow",
    "revoked": "red",
    "expired": "yellow",
}


def print_facts(facts: Iterable[tuple[str, str | None]]) -> None:
    """A name and a value a line; what there is nothing to say of is left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        if value is not None:
            table.add_row(Text(name, "bold"), Text(printable(value), _STYLES.get(value, ""), overflow="fold"))
    _print(table)


def _print(table: "Table", columns: int | None = None) -> None:
    """Without the blanks that fill its last column."""
    target = console()
    target.width = columns or target.width
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def print_list(
    found: Iterator[T],
    limit: int,
    columns: Sequence[str | Column],
    row: Callable[[T], Sequence[str]],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """At most `limit` of what is found, and whether there is more."""
    items = list(islice(found, limit))
    more = len(items) == limit and next(found, None) is not None
    if as_json:
        print_json({"items": items, "more": more})
        return
    print_table(columns, map(row, items), empty=empty)
    if more:
        note(f"There are more: --limit {limit * 2}, for example, lists more.")


def when(moment: datetime | None) -> str:
    """For people, by the clock on their wall."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M")


def actor(who: "ActorBody") -> str:
    return who.display_name or who.primary_email or str(who.user_id)


def size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} GB"


@contextmanager
def progress_bar(words: str) -> Iterator[Callable[[int, int], None]]:
    """Takes what was sent or received so far, and what there is. Gone when it is done; shown on terminals only."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    target = console(stderr=True)
    columns: list[Any] = [TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn()]
    with Progress(
        *columns, TransferSpeedColumn(), console=target, transient=True, disable=not target.is_terminal
    ) as shown:
        task = shown.add_task(printable(words), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def print_diff(text: str) -> None:
    """Lines of a unified diff, each in its colour. A program gets them as they are: `patch` takes them."""
    from rich.text import Text

    target = console()
    if not target.is_terminal:
        typer.echo(text, nl=False)
        return
    for line in text.removesuffix("\n").split("\n"):
        style = next((style for mark, style in _DIFF_STYLES if line.startswith(mark)), "")
        target.print(Text(printable(line), style), soft_wrap=True)


_DIFF_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def read_input(given: str) -> str:
    """`-` stands for what comes in through a pipe."""
    if given != "-":
        return given
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise typer.BadParameter("what came in is not UTF-8") from None
    if not text.strip():
        raise typer.BadParameter("nothing came in to be sent")
    return text
