"""Output of tools in the terminal: colours of programs are kept, all other escape sequences are removed, and diffs are
coloured."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from quarterdeck.cli.action_text import call_text
from quarterdeck.cli.output import DIFF_STYLES, LINE_BREAK, SEQUENCE, UNSAFE

_DIFF_TOOLS = ("edit_file", "write_file")
# Bounded, as the reader of such sequences converts their numbers.
_COLOURS = re.compile("\x1b\\[[0-9;]{0,40}m")
_RESET = "\x1b[0m"
_DIFF_CODES = {"bold": "\x1b[1m", "cyan": "\x1b[36m", "green": "\x1b[32m", "red": "\x1b[31m"}
_HUNK = re.compile(r"^@@ -", re.MULTILINE)


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
    return found + _RESET if "\x1b" in found else found


def is_diff(tool: str, text: str) -> bool:
    return tool in _DIFF_TOOLS and _HUNK.search(text) is not None


def coloured_diff(text: str) -> str:
    """A diff has no colours of its own."""
    return "\n".join(_coloured_diff_lines(without_colours(text)))


def _coloured_diff_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        code = next((_DIFF_CODES[style] for mark, style in DIFF_STYLES if line.startswith(mark)), "")
        yield f"{code}{line}{_RESET}" if code else line


def without_colours(text: str) -> str:
    return _COLOURS.sub("", coloured(text))


def call_line(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """A call in one line: of a command the command, of a change of a file its path."""
    given = arguments if isinstance(arguments, Mapping) else {}
    if tool == "bash" and isinstance(given.get("command"), str):
        return f"bash $ {given['command']}"
    if tool in _DIFF_TOOLS and isinstance(given.get("path"), str):
        return f"{tool} {given['path']}"
    return call_text(tool, arguments)
