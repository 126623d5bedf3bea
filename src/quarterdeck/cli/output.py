"""Output of commands: tables for people, JSON for programs. Colours and progress bars appear on terminals only. Control
characters in other users' texts are replaced. Rich is imported where it is used: that takes as long as a request."""

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec
import typer
from msgspec import Struct

from quarterdeck.cli.errors import CliError
from quarterdeck.core.actors import ActorBody

T = TypeVar("T")

# Control characters except line feed and tab, line separators, and bidirectional marks.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Whole escape sequences. Removed before UNSAFE, so that no part of them remains as text.
SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
LINE_BREAK = re.compile("\r\n|[\u2028\u2029]")
# Those that JSON does not escape itself, and all that people cannot see: zero-width and format characters, fillers,
# variation selectors and tags.
_INVISIBLE = re.compile(
    "[\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_ALL_COLUMNS = 100_000
# Longer than any paragraph and any text that people read in a terminal. Texts of other users can be a megabyte.
_MAX_LINE_CHARACTERS = 10_000
_MAX_TEXT_CHARACTERS = 100_000
_MAX_TEXT_LINES = 2_000
_MAX_CELL_CHARACTERS = 500
# Longest title in a table.
_MAX_TITLE_CHARACTERS = 60


def printable(text: str) -> str:
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str) -> str:
    """Without the rest of very long lines and of a very long text. A mark says how much is left out."""
    shown: list[str] = []
    read, room = 0, _MAX_TEXT_CHARACTERS
    for line in text.split("\n", _MAX_TEXT_LINES)[:_MAX_TEXT_LINES]:
        if room <= 0:
            break
        shown.append(_cut_line(line, _MAX_LINE_CHARACTERS))
        read += len(line) + 1
        room -= min(len(line), _MAX_LINE_CHARACTERS)
    left_out = len(text) - read
    return "\n".join([*shown, _mark(left_out)] if left_out > 0 else shown)


def _cut_line(line: str, characters: int) -> str:
    left_out = len(line) - characters
    return f"{line[:characters]} {_mark(left_out)}" if left_out > 0 else line


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"


def cell(text: str) -> str:
    """A title or description for a table."""
    return shortened(" ".join(text.split()), _MAX_TITLE_CHARACTERS)


def _mark(left_out: int) -> str:
    return f"… ({left_out:,} more characters)"


def say(text: str) -> None:
    typer.echo(printable(text))


def note(text: str) -> None:
    """Prints to stderr, which programs that read the output do not see."""
    typer.echo(printable(text), err=True)


def json_text(record: object, *, indent: int = 0) -> str:
    """JSON with an escape such as `\\u202e` for each invisible character, so that people see what a program reads."""
    encoded = msgspec.json.encode(record)
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    # They only occur in strings, where an escape means the same.
    return _INVISIBLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def print_json(record: object) -> None:
    """JSON is UTF-8, whatever the encoding of the terminal."""
    typer.echo(json_text(record).encode())


class _TerminalDocument(io.RawIOBase):
    """Decodes a document and prints it as text that a terminal cannot interpret."""

    def __init__(self) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(utf8, translate=True)

    def write(self, content: Any) -> int:
        found = bytes(content)
        typer.echo(printable(self._decoder.decode(found)), nl=False)
        return len(found)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A column whose name begins with `>` is aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    for row in rows:
        cells = (_cut_line(" ".join(shown(value).splitlines()), _MAX_CELL_CHARACTERS) for value in row)
        table.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in cells))
    if not table.row_count:
        note(empty)
        return
    # The terminal wraps wide tables. Rich would drop columns and cut IDs.
    target = Console(width=_ALL_COLUMNS, highlight=False, emoji=False)
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


_STYLES = {
    "running": "cyan",
    "queued": "cyan",
    "pending": "cyan",
    "waiting": "yellow",
    "open": "yellow",
    "succeeded": "green",
    "active": "green",
    "failed": "red",
    "cancelled": "yellow",
    "revoked": "red",
    "expired": "yellow",
}


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """One name and value per line. Values that are None or empty are left out, and the rest of very long ones."""
    found = [(name, shown(value)) for name, value in facts if shown(value)]
    width = max((len(name) for name, _ in found), default=0) + 2
    for name, value in found:
        indented = cut(printable(value)).replace("\n", "\n" + " " * width)
        colour = _STYLES.get(value)
        styled = typer.style(indented, fg=colour) if colour else indented
        typer.echo(typer.style(name, bold=True) + " " * (width - len(name)) + styled, color=has_colours())


def has_colours() -> bool:
    """As rich decides it for tables."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


Facts = Sequence[tuple[str, object]]


class Result(Struct, frozen=True):
    """What a command prints: a record for programs; a text, facts, or a function that prints for people."""

    record: object
    shown: str | Facts | Callable[[], None]
    # Printed to stderr, also for programs.
    hint: str | None = None
    exit_code: int = 0

    def print(self, *, as_json: bool) -> None:
        if as_json:
            print_json(self.record)
        elif isinstance(self.shown, str):
            if self.shown:
                say(self.shown)
        elif callable(self.shown):
            self.shown()
        else:
            print_facts(self.shown)
        if self.hint:
            note(self.hint)
        if self.exit_code:
            raise typer.Exit(self.exit_code)


class Page(Struct, Generic[T], frozen=True):
    """A command prints at most `limit` items as a table, and whether there are more."""

    items: Iterator[T]
    limit: int
    columns: Sequence[str]
    row: Callable[[T], Sequence[object]]
    empty: str

    def print(self, *, as_json: bool) -> None:
        items = list(islice(self.items, self.limit))
        has_more = len(items) == self.limit and next(self.items, None) is not None
        if as_json:
            print_json({"items": items, "more": has_more})
            return
        print_table(self.columns, map(self.row, items), empty=self.empty)
        if has_more:
            note(f"Showing the first {self.limit}. Use --limit to show more.")


def shown(value: object) -> str:
    """A value in a table or a list of facts."""
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case datetime():
            return date_text(value)
        case ActorBody():
            return actor_name(value)
        case _:
            return str(value)


def date_text(date: datetime | None) -> str:
    """In local time."""
    return "" if date is None else date.astimezone().strftime("%Y-%m-%d %H:%M")


def created_text(record: Any) -> str:
    """For the bodies of the API that have `created_at` and `created_by`."""
    return f"{date_text(record.created_at)} by {actor_name(record.created_by)}"


def actor_name(actor: ActorBody) -> str:
    """As in the console. Session tokens see no email address, so they know some users by ID only."""
    return actor.display_name or actor.primary_email or f"User {str(actor.user_id)[:8]}"


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
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a callback for the bytes done and the total. The bar is shown on terminals only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    target = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=target, transient=True, disable=not target.is_terminal) as shown:
        task = shown.add_task(printable(title), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def download_to(name: str, title: str, download: Callable[..., int]) -> None:
    """`download` is a method of the client that writes to a file or file name. `-` is stdout."""
    if name == "-":
        out = typer.get_binary_stream("stdout")
        # A pipe or file gets the bytes unchanged.
        download(_TerminalDocument() if sys.stdout.isatty() else out)
        out.flush()
        return
    try:
        with progress_bar(title) as progress:
            count = download(name, progress=progress)
    except OSError as error:
        raise CliError(f"{name}: {error.strerror}") from None
    say(f"wrote {name} ({size(count)})")


def print_diff(text: str) -> None:
    """Prints a unified diff, in colour on terminals. In a pipe it is unchanged, as `patch` needs it."""
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    found = printable(text).removesuffix("\n")
    typer.echo(coloured_diff(found) if has_colours() else found, color=True)


def coloured_diff(text: str) -> str:
    return "\n".join(map(_coloured_diff_line, text.split("\n")))


def _coloured_diff_line(line: str) -> str:
    code = next((code for mark, code in _DIFF_CODES.items() if line.startswith(mark)), "")
    return f"{code}{line}{RESET}" if code else line


RESET = "\x1b[0m"
# Bold, cyan, green and red.
_DIFF_CODES = {"+++": "\x1b[1m", "---": "\x1b[1m", "@@": "\x1b[36m", "+": "\x1b[32m", "-": "\x1b[31m"}


def cost_text(cost_usd: float | None) -> str:
    """Four digits for amounts below a dollar: one step often costs less than a cent."""
    if cost_usd is None:
        return "unknown"
    return f"${cost_usd:,.2f}" if cost_usd >= 1 or cost_usd == 0 else f"${cost_usd:.4f}"


def count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
