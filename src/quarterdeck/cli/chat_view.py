"""How a conversation looks: text is sanitized, cut, wrapped to the width of the terminal and styled.

Texts of other users can be a megabyte long, in one line or in a million. The time to show one grows with its length at
most linearly, and the screen shows the beginning only: while text is printed, no key is read.
"""

import re
from collections.abc import Iterator

from prompt_toolkit.formatted_text import ANSI, split_lines, to_formatted_text
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from quarterdeck.cli.action_text import required
from quarterdeck.cli.chat_actions import hint
from quarterdeck.cli.conversation import Block, BlockKind, Conversation, LiveText, QueuedInput, Stage
from quarterdeck.cli.output import LINE_BREAK, RESET, SEQUENCE, UNSAFE, coloured_diff, cut

# Output of tools in the terminal: colours of programs are kept, all other escape sequences are removed, and diffs are
# coloured.

# Bounded, as the reader of such sequences converts their numbers.
_COLOURS = re.compile("\x1b\\[[0-9;]{0,40}m")


def coloured(text: str) -> str:
    """The output of a program with its colours, and nothing else that a terminal would interpret. Of a line that the
    program has written over, the last text remains."""
    lines = LINE_BREAK.sub("\n", text).split("\n")
    shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    parts = []
    end = 0
    for sequence in SEQUENCE.finditer(shown):
        parts.append(UNSAFE.sub("", shown[end : sequence.start()]))
        if _COLOURS.fullmatch(sequence[0]):
            parts.append(sequence[0])
        end = sequence.end()
    parts.append(UNSAFE.sub("", shown[end:]))
    found = "".join(parts)
    return found + RESET if "\x1b" in found else found


def without_colours(text: str) -> str:
    return _COLOURS.sub("", coloured(text))


Fragments = list[tuple[str, str]]

STYLE = Style.from_dict(
    {"marker": "ansicyan bold", "input": "bold", "quiet": "dim", "warning": "ansiyellow", "prompt": ""}
)

_TAB_COLUMNS = 4
_MAX_QUEUED_SHOWN = 5
_MIN_COLUMNS = 10
_PROGRESS_COLUMNS = 200
# Most rows that are shown of a command's output or of a diff.
_OUTPUT_ROWS = 30
_DIFF_ROWS = 60
_LIVE_OUTPUT_ROWS = 10
# More than the widest terminal shows, with its colours.
_OUTPUT_LINE_CHARACTERS = 4_000
_LIVE_CHARACTERS = 16_000
# How much of a text is read to show its beginning in one line.
_PREVIEW_CHARACTERS = 4_000


def sanitized(text: str) -> str:
    """Text of a model or another user, without anything that a terminal would interpret."""
    return UNSAFE.sub("", SEQUENCE.sub("", LINE_BREAK.sub("\n", text)))


def one_line(text: str, columns: int) -> str:
    """The beginning of the text. Queued inputs are drawn again with each key, so a long text is not read to its end."""
    return shortened(" ".join(sanitized(text[:_PREVIEW_CHARACTERS]).split()), columns)


def shortened(text: str, columns: int) -> str:
    end = _fitting(text, 0, columns)
    return text if end == len(text) else text[: _fitting(text, 0, columns - 1)] + "…"


def wrap(text: str, columns: int) -> Iterator[str]:
    """Lines that fit, broken between words where possible. Looks at each character about once."""
    for line in text.expandtabs(_TAB_COLUMNS).split("\n"):
        yield from _wrap_line(line.rstrip(), columns)


def _wrap_line(line: str, columns: int) -> Iterator[str]:
    start = 0
    while (end := _fitting(line, start, columns)) < len(line):
        end = max(start + 1, end)
        space = line.rfind(" ", start, end + 1)
        # Indentation is not a place between words.
        if space > start and line[start:space].strip():
            yield line[start:space].rstrip()
            start = space + 1
            while line[start] == " ":
                start += 1
        else:
            yield line[start:end]
            start = end
    yield line[start:]


def _fitting(text: str, start: int, columns: int) -> int:
    """The end of the characters from `start` that fit."""
    used = 0
    for index in range(start, len(text)):
        used += get_cwidth(text[index])
        if used > columns:
            return index
    return len(text)


def block_lines(block: Block, columns: int) -> Iterator[Fragments]:
    columns = max(_MIN_COLUMNS, columns)
    match block.kind:
        case BlockKind.INPUT:
            yield []
            for index, line in enumerate(wrap(cut(sanitized(block.text)), columns - 2)):
                yield [("class:marker", "› " if index == 0 else "  "), ("class:input", line)]
        case BlockKind.ANSWER:
            yield []
            for line in wrap(cut(sanitized(block.text).strip("\n")), columns):
                yield [("", line)]
        case BlockKind.TOOL:
            yield [("class:quiet", "  ⚙ " + one_line(block.text, columns - 4))]
        case BlockKind.OUTPUT:
            yield from _output_lines(coloured(cut(block.text)), columns, _OUTPUT_ROWS)
        case BlockKind.DIFF:
            yield from _output_lines(coloured_diff(without_colours(cut(block.text))), columns, _DIFF_ROWS)
        case _:
            style = "class:warning" if block.kind is BlockKind.WARNING else "class:quiet"
            for line in wrap(cut(sanitized(block.text)), columns - 2):
                yield [(style, f"  {line}")]


def _output_lines(text: str, columns: int, rows: int) -> Iterator[Fragments]:
    """The beginning and the end of what a command has printed."""
    lines = [line.rstrip() for line in text.strip("\n").expandtabs(_TAB_COLUMNS).split("\n")]
    if len(lines) > rows:
        head, tail = rows // 3, rows - rows // 3
        left_out = f"… ({len(lines) - rows:,} more lines)"
        shown = [*_styled(lines[:head], columns), [("class:quiet", left_out)], *_styled(lines[-tail:], columns)]
    else:
        shown = _styled(lines, columns)
    for line in shown:
        yield [("", "    "), *line]


def _styled(lines: list[str], columns: int) -> list[Fragments]:
    """Lines with colours, each cut to the width of the terminal."""
    found = []
    styled = split_lines(to_formatted_text(ANSI("\n".join(line[:_OUTPUT_LINE_CHARACTERS] for line in lines))))
    for text, line in zip(lines, styled, strict=False):
        is_cut = len(text) > _OUTPUT_LINE_CHARACTERS
        used, fitting = 0, []
        for style, character, *_ in line:
            used += get_cwidth(character)
            if used > columns - 5:
                is_cut = True
                break
            fitting.append((style, character))
        found.append([*fitting, ("class:quiet", "…")] if is_cut else fitting)
    return found


def plain_text(block: Block) -> str:
    """For a file or another program, without wrapping."""
    text = sanitized(block.text)
    match block.kind:
        case BlockKind.INPUT:
            return "\n> " + text.replace("\n", "\n  ")
        case BlockKind.ANSWER:
            return "\n" + text.strip("\n")
        case BlockKind.TOOL:
            return "  * " + " ".join(text.split())
        case BlockKind.OUTPUT | BlockKind.DIFF:
            return "    " + without_colours(block.text).strip("\n").replace("\n", "\n    ")
        case BlockKind.PROGRESS:
            # Repeats an input, which is printed in full when the agent reads it.
            return "  " + one_line(block.text, _PROGRESS_COLUMNS)
        case _:
            return "  " + " ".join(text.split())


_QUEUE_TEXTS = {
    Stage.SENDING: "Sending…",
    Stage.STARTED: "Started a run · Queued",
    Stage.STEERED: "Queued for the current run",
    Stage.MOVED: "Queued for the next run",
    Stage.PENDING: "Queued behind the current run",
}


def queue_text(one: QueuedInput) -> str:
    """The state of an input that no run has read yet."""
    return _QUEUE_TEXTS[one.stage]


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
    below += _attachment_lines(conversation, columns)
    below += _action_lines(conversation, columns, max(1, rows // 2))
    room = max(1, rows - len(below) - 1)
    text: list[Fragments] = [[("", line)] for line in _last_lines(conversation.live_text, columns, room)]
    text += _live_output(conversation, columns, min(room, _LIVE_OUTPUT_ROWS))
    above: list[Fragments] = [[], *text] if text else []
    return [*above, *([[]] if below else []), *below][-rows:]


def _live_output(conversation: Conversation, columns: int, rows: int) -> list[Fragments]:
    """The last lines that the running commands have printed."""
    found: list[Fragments] = []
    for output in conversation.live_output.values():
        end = coloured(output.after(output.length - _LIVE_CHARACTERS)).removesuffix("\n")
        lines = [line.rstrip() for line in end.strip("\n").expandtabs(_TAB_COLUMNS).split("\n")]
        found += [[("", "    "), *line] for line in _styled(lines[-rows:], columns)]
    return found[-rows:]


def _attachment_lines(conversation: Conversation, columns: int) -> list[Fragments]:
    """Files of the next message."""
    files = ", ".join(map(str, conversation.attachments.values()))
    found = [*([f"Attached to the next message: {files}"] if files else []), *conversation.uploads.values()]
    return [[("class:quiet", one_line(text, columns))] for text in found[:_MAX_QUEUED_SHOWN]]


def _action_lines(conversation: Conversation, columns: int, rows: int) -> list[Fragments]:
    """The action to be answered next, with its keys."""
    data = conversation.actions.current
    if data is None:
        return []
    whole = required(data)
    text = [*wrap(sanitized(whole[:_PREVIEW_CHARACTERS]), columns - 2)]
    if len(text) > rows or len(whole) > _PREVIEW_CHARACTERS:
        text = [*text[: rows - 1], f"… All of it: qd actions show {data.get('action_id')}"]
    more = len(conversation.actions) - 1
    waiting = [f"  {more} more to answer"] if more else []
    return [
        [],
        *([("class:warning", "? " if index == 0 else "  "), ("class:input", line)] for index, line in enumerate(text)),
        *([("class:quiet", line)] for line in waiting),
        *([("class:marker", f"  {line}")] for line in wrap(hint(data, conversation.actions.field), columns - 2)),
    ]


def _queued_lines(one: QueuedInput, columns: int) -> Iterator[Fragments]:
    yield [("class:marker", "› "), ("class:quiet", one_line(one.text, columns - 2))]
    files = f" · Attached: {', '.join(map(str, one.attachments))}" if one.attachments else ""
    yield [("class:quiet", "  " + one_line(queue_text(one) + files, columns - 2))]


def _status(conversation: Conversation) -> str:
    if not conversation.is_connected:
        return "○ Reconnecting…"
    if conversation.active_run is None:
        return ""
    if conversation.actions:
        return (
            f"○ {'Waiting for an answer' if conversation.actions.current else 'Sending the answer…'} · Ctrl-C to cancel"
        )
    activity = f"Calling {conversation.calls[0]}" if conversation.calls else "Running"
    return f"● {activity} · Ctrl-C to cancel"


def _last_lines(text: LiveText, columns: int, rows: int) -> list[str]:
    """Wraps only the end of the text: an answer can be much longer than the screen, and each delta draws it again."""
    enough = 2 * columns * rows
    # The start moves in large steps. Otherwise words would jump between lines with each delta.
    end = text.after((text.length // enough - 1) * enough).strip("\n")
    return list(wrap(sanitized(end), columns))[-rows:] if end.strip() else []
