"""How what a conversation shows looks: text made harmless, wrapped to the width of a terminal, and styled."""

import re
from collections.abc import Iterator

from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from quarterdeck.cli.conversation import Block, Conversation, Kind, Stage, Waiting

Fragments = list[tuple[str, str]]

STYLE = Style.from_dict(
    {
        "marker": "ansicyan bold",
        "input": "bold",
        "quiet": "dim",
        "trouble": "ansiyellow",
        "prompt": "",
    }
)

# Whole sequences first, so that nothing of them is left to be read; then whatever else could steer a terminal: C0 but
# for tab and line feed, C1, and the marks that turn the direction of text.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
_LINE_BREAK = re.compile("\r\n|[\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TAB_COLUMNS = 4
_MOST_WAITING_SHOWN = 5
_FEWEST_COLUMNS = 10


def clean(text: str) -> str:
    """Text that came from a model or from other people, without anything that a terminal would obey."""
    return _CONTROL.sub("", _SEQUENCE.sub("", _LINE_BREAK.sub("\n", text)))


def one_line(text: str, columns: int) -> str:
    return cut(" ".join(clean(text).split()), columns)


def cut(text: str, columns: int) -> str:
    if len(text) <= columns and get_cwidth(text) <= columns:
        return text
    return text[: _fitting(text, columns - 1)] + "…"


def wrap(text: str, columns: int) -> Iterator[str]:
    """Lines that fit, broken between words where that is possible."""
    for line in text.expandtabs(_TAB_COLUMNS).split("\n"):
        rest = line.rstrip()
        while get_cwidth(rest) > columns:
            at = max(1, _fitting(rest, columns))
            blank = rest.rfind(" ", 0, at + 1)
            # A blank in the indentation is no place between words.
            if blank > 0 and rest[:blank].strip():
                yield rest[:blank].rstrip()
                rest = rest[blank + 1 :].lstrip()
            else:
                yield rest[:at]
                rest = rest[at:]
        yield rest


def _fitting(text: str, columns: int) -> int:
    """How many characters of the text fit."""
    used = 0
    for at, character in enumerate(text):
        used += get_cwidth(character)
        if used > columns:
            return at
    return len(text)


def lines_of(block: Block, columns: int) -> Iterator[Fragments]:
    columns = max(_FEWEST_COLUMNS, columns)
    match block.kind:
        case Kind.INPUT:
            yield []
            for at, line in enumerate(wrap(clean(block.text), columns - 2)):
                yield [("class:marker", "› " if at == 0 else "  "), ("class:input", line)]
        case Kind.ANSWER:
            yield []
            for line in wrap(clean(block.text).strip("\n"), columns):
                yield [("", line)]
        case Kind.TOOL:
            yield [("class:quiet", "  ⚙ " + one_line(block.text, columns - 4))]
        case _:
            style = "class:trouble" if block.kind is Kind.TROUBLE else "class:quiet"
            for line in wrap(clean(block.text), columns - 2):
                yield [(style, f"  {line}")]


def plain(block: Block) -> str:
    """For a file or another program: nothing is wrapped."""
    text = clean(block.text)
    match block.kind:
        case Kind.INPUT:
            return "\n> " + text.replace("\n", "\n  ")
        case Kind.ANSWER:
            return "\n" + text.strip("\n")
        case Kind.TOOL:
            return "  * " + " ".join(text.split())
        case _:
            return "  " + " ".join(text.split())


def live_lines(conversation: Conversation, columns: int, rows: int) -> list[Fragments]:
    """What stands between the finished text and the line that is being typed, in at most so many rows."""
    columns = max(_FEWEST_COLUMNS, columns)
    waiting: list[Fragments] = [
        line for one in conversation.waiting[:_MOST_WAITING_SHOWN] for line in _waiting_lines(one, columns)
    ]
    more = len(conversation.waiting) - _MOST_WAITING_SHOWN
    if more > 0:
        waiting.append([("class:quiet", cut(f"  … and {more} more", columns))])
    status = _status(conversation)
    below = [*waiting, [("class:quiet", one_line(status, columns))]] if status else waiting
    room = max(1, rows - len(below) - 1)
    text = [[("", line)] for line in _last_lines(conversation.streaming, columns, room)]
    above: list[Fragments] = [[], *text] if text else []
    return [*above, *([[]] if below else []), *below][-rows:]


def _waiting_lines(one: Waiting, columns: int) -> Iterator[Fragments]:
    state = "sending…" if one.stage is Stage.SENDING else f"accepted · {one.stage} · not taken up yet"
    yield [("class:marker", "› "), ("class:quiet", one_line(one.text, columns - 2))]
    yield [("class:quiet", "  " + one_line(state, columns - 2))]


def _status(conversation: Conversation) -> str:
    if not conversation.connected:
        return "○ no connection, trying again"
    if conversation.active_run is None:
        return ""
    doing = f"calling {conversation.calls[0]}" if conversation.calls else "working"
    return f"● {doing} · Ctrl-C cancels"


def _last_lines(text: str, columns: int, rows: int) -> list[str]:
    """Only the end is looked at: an answer can be far longer than a screen, and this is drawn for each piece of it."""
    enough = 2 * columns * rows
    # The place where it begins moves seldom, or words would jump from line to line with each piece.
    end = text[max(0, len(text) // enough - 1) * enough :].strip("\n")
    return list(wrap(clean(end), columns))[-rows:] if end.strip() else []
