"""Line diff of two texts, in time that does not depend on their content (patience diff).

`difflib` takes quadratic time and more when lines repeat. Here the lines that occur once in both texts are anchors, the
parts between anchors are compared again, and after a few levels the rest counts as replaced. The diff may be longer
than necessary, but is never wrong.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from msgspec import Struct

_CONTEXT_LINES = 3
# Each level takes as long as reading both texts. Real files need two or three.
_LEVELS = 8
_NO_FILE = "/dev/null"
_NO_NEWLINE = "\n\\ No newline at end of file\n"


class LineChange(Struct, frozen=True):
    """Lines of `base` that lines of `head` replace. Ends are exclusive."""

    base_start: int
    base_end: int
    head_start: int
    head_end: int


def unified_diff(path: str, base: str | None, head: str | None) -> str:
    """`None` means that the file does not exist. The result is empty when no line differs."""
    before, after = _lines(base or ""), _lines(head or "")
    hunks = [_hunk(before, after, group) for group in _groups(changes(before, after))]
    if not hunks:
        return ""
    # Like git: `patch` reads a name with a space up to the tab.
    name = f"{path}\t" if " " in path else path
    old, new = f"a/{name}" if base is not None else _NO_FILE, f"b/{name}" if head is not None else _NO_FILE
    return "".join([f"--- {old}\n+++ {new}\n", *hunks])


def changes(base: Sequence[str], head: Sequence[str]) -> list[LineChange]:
    found: list[LineChange] = []
    base_at = head_at = 0
    for base_start, head_start, length in [*sorted(_matches(base, head)), (len(base), len(head), 0)]:
        if base_at < base_start or head_at < head_start:
            found.append(LineChange(base_at, base_start, head_at, head_start))
        base_at, head_at = base_start + length, head_start + length
    return found


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only a line feed ends a line; str.splitlines splits at nine other characters too."""
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _matches(base: Sequence[str], head: Sequence[str]) -> list[tuple[int, int, int]]:
    """Blocks of equal lines as (base line, head line, length), unordered."""
    found: list[tuple[int, int, int]] = []
    todo = [(0, len(base), 0, len(head), _LEVELS)]
    while todo:
        low, high, other_low, other_high, levels = todo.pop()
        same = _same_from(base, low, high, head, other_low, other_high)
        if same:
            found.append((low, other_low, same))
        low, other_low = low + same, other_low + same
        while low < high and other_low < other_high and base[high - 1] == head[other_high - 1]:
            high, other_high = high - 1, other_high - 1
            found.append((high, other_high, 1))
        if low == high or other_low == other_high or levels == 0:
            continue
        anchors = _anchors(base, low, high, head, other_low, other_high)
        for line, other_line in anchors:
            # Otherwise the block of the previous anchor includes it.
            if line >= low:
                todo.append((low, line, other_low, other_line, levels - 1))
                same = _same_from(base, line, high, head, other_line, other_high)
                found.append((line, other_line, same))
                low, other_low = line + same, other_line + same
        if anchors:
            todo.append((low, high, other_low, other_high, levels - 1))
    return found


def _same_from(base: Sequence[str], low: int, high: int, head: Sequence[str], other_low: int, other_high: int) -> int:
    most, count = min(high - low, other_high - other_low), 0
    while count < most and base[low + count] == head[other_low + count]:
        count += 1
    return count


def _anchors(
    base: Sequence[str], low: int, high: int, head: Sequence[str], other_low: int, other_high: int
) -> list[tuple[int, int]]:
    """Lines that occur once in both texts: their longest chain in the same order (patience sorting)."""
    positions, others = _once(base, low, high), _once(head, other_low, other_high)
    pairs = [(line, others[text]) for text, line in positions.items() if text in others]
    # For each length, the chain with the smallest end: its last line in `head`, and the index of its last pair.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, other_line) in enumerate(pairs):
        length = bisect_left(ends, other_line)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(other_line)
            last.append(number)
        else:
            ends[length], last[length] = other_line, number
    chain: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _once(lines: Sequence[str], low: int, high: int) -> dict[str, int]:
    """Line numbers of the lines that occur once from `low` to `high`, in order."""
    positions: dict[str, int] = {}
    repeated: set[str] = set()
    for at in range(low, high):
        if lines[at] in positions:
            repeated.add(lines[at])
        else:
            positions[lines[at]] = at
    return {text: at for text, at in positions.items() if text not in repeated}


def _groups(found: list[LineChange]) -> Iterator[list[LineChange]]:
    """Changes whose contexts overlap form one hunk."""
    group: list[LineChange] = []
    for change in found:
        if group and change.base_start - group[-1].base_end > 2 * _CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(base: Sequence[str], head: Sequence[str], group: list[LineChange]) -> str:
    first, last = group[0], group[-1]
    lead = min(_CONTEXT_LINES, first.base_start)
    trail = min(_CONTEXT_LINES, len(base) - last.base_end)
    old = _span(first.base_start - lead, last.base_end + trail)
    new = _span(first.head_start - lead, last.head_end + trail)
    written = [f"@@ -{old} +{new} @@\n"]
    at = first.base_start - lead
    for change in group:
        written += _marked(" ", base[at : change.base_start])
        written += _marked("-", base[change.base_start : change.base_end])
        written += _marked("+", head[change.head_start : change.head_end])
        at = change.base_end
    written += _marked(" ", base[at : at + trail])
    return "".join(written)


def _span(start: int, end: int) -> str:
    """Line numbers start at 1; an empty span has the number of the line before it."""
    count = end - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    return (f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}{_NO_NEWLINE}" for line in lines)
