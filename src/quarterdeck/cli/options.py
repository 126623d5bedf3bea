"""Options shared by several commands, and parsers for their values."""

import re
import sys
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer

from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.core.actors import Permission
from quarterdeck.core.ids import parse_id
from quarterdeck.core.text_types import Line

_MAX_LINE_CHARACTERS = 200
_MAX_USD = 1e9
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def line(text: str) -> str:
    try:
        text.encode()
        return msgspec.convert(text, Line)
    except UnicodeEncodeError:
        raise typer.BadParameter("not valid UTF-8") from None
    except msgspec.ValidationError:
        raise typer.BadParameter(_line_fault(text)) from None


def _line_fault(text: str) -> str:
    if not text:
        return "must not be empty"
    if len(text) > _MAX_LINE_CHARACTERS:
        return f"must be at most {_MAX_LINE_CHARACTERS} characters long"
    return "must be one line without control characters"


def text(given: str) -> str:
    """Any text that can be sent. Python passes arguments that are not UTF-8 as lone surrogates."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("not valid UTF-8") from None
    return given


def email(text: str) -> str:
    local, at, domain = line(text).rpartition("@")
    if not (at and local and domain) or any(character.isspace() for character in text):
        raise typer.BadParameter(f"{text!r} is not an email address")
    return text


def uuid(text: str) -> UUID:
    found = parse_id(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a UUID")
    return found


def date(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date such as 2027-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 30m, 12h, 7d or 4w")
    return timedelta(seconds=int(found[1]) * _UNIT_SECONDS[found[2]])


def expiration(at: datetime | None, after: timedelta | None) -> datetime | None:
    """From `--expires-at` and `--expires-in`, of which at most one is given."""
    if at is not None and after is not None:
        raise UsageError("Use either --expires-at or --expires-in")
    return at if after is None else datetime.now(UTC) + after


def day(text: str) -> Date:
    try:
        return Date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date such as 2027-01-31") from None


def json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"not a JSON object: {error}") from None


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) == int(text)):
        raise typer.BadParameter(f"{text!r} is not a number from 1 to 999999999")
    return int(text)


def usd(text: str) -> float:
    try:
        found = float(text.removeprefix("$"))
    except ValueError:
        found = 0.0
    if not 0 < found <= _MAX_USD:
        raise typer.BadParameter(f"{text!r} is not an amount in US dollars, such as 2.50")
    return found


def file_name(text: str) -> str:
    if "\0" in text:
        raise typer.BadParameter("a file name cannot contain a NUL character")
    return text


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Profile = Annotated[
    str | None, typer.Option("--profile", parser=line, metavar="NAME", help="Saved login to use. Default: default.")
]
Limit = Annotated[int, typer.Option(parser=count, metavar="N", help="Maximum number of items.")]
Permissions = Annotated[
    list[Permission],
    typer.Option(
        "--permission", metavar="PERMISSION", help=f"A permission of the key: {', '.join(Permission)}. Can be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("This can't be undone. Use --yes to confirm without a terminal.")
    from quarterdeck.cli.output import printable

    typer.confirm(printable(question), abort=True, err=True)
