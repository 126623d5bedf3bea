"""The options that many commands have, and how what people type is read. A wrong value is told in one line."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
import typer

from quarterdeck.core.ids import parse_id
from quarterdeck.core.text_types import Line

_DURATION = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def line(text: str) -> str:
    try:
        text.encode()
        return msgspec.convert(text, Line)
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not UTF-8") from None
    except msgspec.ValidationError as fault:
        raise typer.BadParameter(str(fault)) from None


def text(given: str) -> str:
    """Any text that can be sent. What is not UTF-8 reaches a program as lone surrogates."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not UTF-8") from None
    return given


def email(text: str) -> str:
    local, at, domain = line(text).rpartition("@")
    if not (at and local and domain) or any(character.isspace() for character in text):
        raise typer.BadParameter(f"{text!r} is not an e-mail address")
    return text


def uuid(text: str) -> UUID:
    found = parse_id(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a UUID")
    return found


def moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date and time such as 2027-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 90s, 30m, 12h, 7d or 4w")
    return timedelta(seconds=int(found[1]) * _UNIT_SECONDS[found[2]])


def file_name(text: str) -> str:
    if "\0" in text:
        raise typer.BadParameter("a name of a file has no NUL character")
    return text


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Profile = Annotated[
    str | None, typer.Option("--profile", parser=line, metavar="NAME", help="Which login to use. Default: default.")
]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="List at most so many.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Whoever is not at a terminal cannot be asked, and says so beforehand."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this cannot be undone: give --yes where nobody can be asked")
    typer.confirm(question, abort=True, err=True)
