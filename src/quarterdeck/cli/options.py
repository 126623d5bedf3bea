"""Options and arguments: how they are declared, parsers for their values, and those that several commands have.

Arguments that name an object take an ID, the beginning of an ID, or a name. `find.py` looks them up.
"""

import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import UNSET, UnsetType

from quarterdeck.cli import completion
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.output import printable
from quarterdeck.core.actors import Permission
from quarterdeck.core.ids import parse_id
from quarterdeck.core.text_types import Line, check_email

T = TypeVar("T")

_MAX_LINE_CHARACTERS = 200
_MAX_USD = 1e9
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# --- parsers ---


def text(given: str) -> str:
    """Any text that can be sent. Python passes arguments that are not UTF-8 as lone surrogates."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("not valid UTF-8") from None
    return given


def line(given: str) -> str:
    try:
        return msgspec.convert(text(given), Line)
    except msgspec.ValidationError:
        raise typer.BadParameter(_line_fault(given)) from None


def _line_fault(given: str) -> str:
    if not given:
        return "must not be empty"
    if len(given) > _MAX_LINE_CHARACTERS:
        return f"must be at most {_MAX_LINE_CHARACTERS} characters long"
    return "must be one line without control characters"


def email(given: str) -> str:
    try:
        check_email(line(given))
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not an email address") from None
    return given


def uuid(given: str) -> Any:
    found = parse_id(given)
    if found is None:
        raise typer.BadParameter(f"{given!r} is not a UUID")
    return found


def date(given: str) -> datetime:
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a date such as 2027-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def duration(given: str) -> timedelta:
    found = _DURATION.fullmatch(given)
    if found is None:
        raise typer.BadParameter(f"{given!r} is not a duration such as 90s, 30m, 12h, 7d or 4w")
    return timedelta(seconds=int(found[1]) * _UNIT_SECONDS[found[2]])


def day(given: str) -> str:
    try:
        return Date.fromisoformat(given).isoformat()
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a date such as 2027-01-31") from None


def json_object(given: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"not a JSON object: {error}") from None


def whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(given: str | int) -> int:
        # Typer passes the default too, which is a number.
        digits = str(given)
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(highest))
        if not (is_number and lowest <= int(digits) <= highest):
            raise typer.BadParameter(f"{given!r} is not a whole number from {lowest} to {highest}")
        return int(digits)

    return parse


def one_of(values: Iterable[str]) -> Callable[[str], str]:
    def parse(given: str) -> str:
        for value in values:
            if value == given:
                return value
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(values)}")

    return parse


def usd(given: str) -> float:
    try:
        found = float(given.removeprefix("$"))
    except ValueError:
        found = 0.0
    if not 0 < found <= _MAX_USD:
        raise typer.BadParameter(f"{given!r} is not an amount in US dollars, such as 2.50")
    return found


def file_name(given: str) -> str:
    if "\0" in given:
        raise typer.BadParameter("a file name cannot contain a NUL character")
    return given


version_number = whole_number(1, 2**31 - 1)
tokens_count = whole_number(1, 2**53)

# --- declarations, for `Annotated` ---


def option(
    metavar: str,
    description: str,
    *names: str,
    parser: Callable[[str], Any] = text,
    complete: Callable[..., Any] | None = None,
) -> Any:
    return typer.Option(*names, parser=parser, metavar=metavar, help=description, autocompletion=complete)


def choice(metavar: str, description: str, *names: str, values: Iterable[str]) -> Any:
    return option(metavar, description, *names, parser=one_of(values), complete=completion.one_of(values))


def argument(
    metavar: str, description: str, *, parser: Callable[[str], Any] = text, complete: Callable[..., Any] | None = None
) -> Any:
    return typer.Argument(parser=parser, metavar=metavar, help=description, autocompletion=complete)


def flag(name: str, description: str) -> Any:
    return typer.Option(name, help=description)


# --- shared by several commands ---

AsJson = Annotated[bool, flag("--json", "Print JSON.")]
Profile = Annotated[str | None, option("NAME", "Saved login to use. Default: default.", parser=line)]
Limit = Annotated[int, option("N", "Maximum number of items.", parser=whole_number(1, 999_999_999))]
Permissions = Annotated[
    list[Permission],
    choice("PERMISSION", f"A permission of the key: {', '.join(Permission)}. Can be repeated.", values=Permission),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
FromDay = Annotated[str | None, option("DATE", "First day (UTC). Default: the last 30 days.", "--from", parser=day)]
ToDay = Annotated[str | None, option("DATE", "Day after the last one (UTC).", parser=day)]

SESSION_HELP = "ID, ID prefix or title of the session."
SessionId = Annotated[str, argument("SESSION", SESSION_HELP, complete=completion.sessions)]
RunId = Annotated[str, argument("RUN", "ID or ID prefix of the run.", complete=completion.runs)]
SessionOfRun = Annotated[
    str | None,
    option(
        "SESSION",
        "Session in which to look up an ID prefix. Default: the 20 newest sessions.",
        complete=completion.sessions,
    ),
]
SkillId = Annotated[str, argument("SKILL", "ID, ID prefix or name of the skill.", complete=completion.skills)]
AgentId = Annotated[str, argument("AGENT", "ID, ID prefix or name of the agent.", complete=completion.agents)]
AgentOption = Annotated[
    str | None, option("AGENT[@VERSION]", "ID or name of the agent that the session uses.", complete=completion.agents)
]


def confirm(question: str | Callable[[], str], *, yes: bool) -> None:
    """A question that takes a request is a function, which is called only without `--yes`."""
    if yes:
        return
    asked = question if isinstance(question, str) else question()
    if not sys.stdin.isatty():
        raise CliError("This can't be undone. Use --yes to confirm without a terminal.")
    typer.confirm(printable(asked), abort=True, err=True)


def expiration(at: datetime | None, after: timedelta | None) -> datetime | None:
    """From `--expires-at` and `--expires-in`, of which at most one is given."""
    check_either("--expires-at", at, "--expires-in", after)
    return at if after is None else datetime.now(UTC) + after


def overlap_seconds(overlap: timedelta | None) -> int:
    """How long an old secret still works. Default: a day."""
    return int((timedelta(days=1) if overlap is None else overlap).total_seconds())


def check_either(one: str, is_given: object, other: str, is_other_given: object) -> None:
    if is_given not in (None, False) and is_other_given not in (None, False):
        raise CliError(f"Use either {one} or {other}")


def or_unset(given: T | None) -> T | UnsetType:
    return UNSET if given is None else given


def read_file(name: str | Path) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        raise CliError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(f"{name}: not valid UTF-8") from None


def read_input(given: str) -> str:
    """The given text, or stdin for `-`."""
    try:
        found = sys.stdin.buffer.read().decode() if given == "-" else given
    except UnicodeDecodeError:
        raise CliError("stdin is not valid UTF-8") from None
    if not found.strip():
        raise CliError("stdin is empty: nothing to send" if given == "-" else "The message is empty")
    return found
