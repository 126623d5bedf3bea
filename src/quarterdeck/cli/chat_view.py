"""How a conversation looks: text is sanitized, wrapped to the width of the terminal and styled."""

import re
from collections.abc import Iterator

from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from quarterdeck.cli.conversation import Block, Conversation, Kind, QueuedInput, Stage

Fragments = list[tuple[str, str]]

STYLE = Style.from_dict(
    {
        "marker": "ansicyan bold",
        "input": "bold",
        "quiet": "dim",
        "warning": "ansiyellow",
        "prompt": "",
    }
)

# Whole escape sequences first, so that no part of them remains as text. Then other control characters: C0 except tab
# and line feed, C1, and bidirectional marks.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
_LINE_BREAK = re.compile("\r\n|[\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TAB_COLUMNS = 4
_MAX_QUEUED_SHOWN = 5
_MIN_COLUMNS = 10


def sanitized(text: str) -> str:
    """Text of a model or another user, without anything that a terminal would interpret."""
    return _CONTROL.sub("", _SEQUENCE.sub("", _LINE_BREAK.sub("\n", text)))


def one_line(text: str, columns: int) -> str:
    return shortened(" ".join(sanitized(text).split()), columns)


def shortened(text: str, columns: int) -> str:
    if len(text) <= columns and get_cwidth(text) <= columns:
        return text
    return text[: _fitting(text, columns - 1)] + "…"


def wrap(text: str, columns: int) -> Iterator[str]:
    """Lines that fit, broken between words where possible."""
    for line in text.expandtabs(_TAB_COLUMNS).split("\n"):
        rest = line.rstrip()
        while get_cwidth(rest) > columns:
            end = max(1, _fitting(rest, columns))
            space = rest.rfind(" ", 0, end + 1)
            # Indentation is not a place between words.
            if space > 0 and rest[:space].strip():
                yield rest[:space].rstrip()
                rest = rest[space + 1 :].lstrip()
            else:
                yield rest[:end]
                rest = rest[end:]
        yield rest


def _fitting(text: str, columns: int) -> int:
    """The number of characters that fit."""
    used = 0
    for index, character in enumerate(text):
        used += get_cwidth(character)
        if used > columns:
            return index
    return len(text)


def block_lines(block: Block, columns: int) -> Iterator[Fragments]:
    columns = max(_MIN_COLUMNS, columns)
    match block.kind:
        case Kind.INPUT:
            yield []
            for index, line in enumerate(wrap(sanitized(block.text), columns - 2)):
                yield [("class:marker", "› " if index == 0 else "  "), ("class:input", line)]
        case Kind.ANSWER:
            yield []
            for line in wrap(sanitized(block.text).strip("\n"), columns):
                yield [("", line)]
        case Kind.TOOL:
            yield [("class:quiet", "  ⚙ " + one_line(block.text, columns - 4))]
        case _:
            style = "class:warning" if block.kind is Kind.WARNING else "class:quiet"
            for line in wrap(sanitized(block.text), columns - 2):
                yield [(style, f"  {line}")]


def plain_text(block: Block) -> str:
    """For a file or another program, without wrapping."""
    text = sanitized(block.text)
    match block.kind:
        case Kind.INPUT:
            return "\n> " + text.replace("\n", "\n  ")
        case Kind.ANSWER:
            return "\n" + text.strip("\n")
        case Kind.TOOL:
            return "  * " + " ".join(text.split())
        case _:
            return "  " + " ".join(text.split())


def queue_text(one: QueuedInput) -> str:
    """The state of an input that no run has read yet."""
    match one.stage:
        case Stage.SENDING:
            return "Sending…"
        case Stage.STARTED:
            return "Started a run · Queued"
        case Stage.STEERED:
            return "Queued for the current run"
        case Stage.MOVED:
            return "Queued for the next run"


def live_lines(conversation: Conversation, columns: int, rows: int) -> list[Fragments]:
    """The part of the screen between the finished text and the input line, at most `rows` rows high."""
    columns = max(_MIN_COLUMNS, columns)
    queued: list[Fragments] = [
        line for one in conversation.queued[:_MAX_QUEUED_SHOWN] for line in _queued_lines(one, columns)
    ]
    more = len(conversation.queued) - _MAX_QUEUED_SHOWN
    if more > 0:
        queued.append([("class:quiet", shortened(f"  … and {more} more", columns))])
    status = _status(conversation)
    below = [*queued, [("class:quiet", one_line(status, columns))]] if status else queued
    room = max(1, rows - len(below) - 1)
    text = [[("", line)] for line in _last_lines(conversation.streaming, columns, room)]
    above: list[Fragments] = [[], *text] if text else []
    return [*above, *([[]] if below else []), *below][-rows:]


def _queued_lines(one: QueuedInput, columns: int) -> Iterator[Fragments]:
    yield [("class:marker", "› "), ("class:quiet", one_line(one.text, columns - 2))]
    yield [("class:quiet", "  " + one_line(queue_text(one), columns - 2))]


def _status(conversation: Conversation) -> str:
    if not conversation.is_connected:
        return "○ Reconnecting…"
    if conversation.active_run is None:
        return ""
    activity = f"Calling {conversation.calls[0]}" if conversation.calls else "Running"
    return f"● {activity} · Ctrl-C to cancel"


def _last_lines(text: str, columns: int, rows: int) -> list[str]:
    """Wraps only the end of the text: an answer can be much longer than the screen, and each delta draws it again."""
    enough = 2 * columns * rows
    # The start moves in large steps. Otherwise words would jump between lines with each delta.
    end = text[max(0, len(text) // enough - 1) * enough :].strip("\n")
    return list(wrap(sanitized(end), columns))[-rows:] if end.strip() else []
