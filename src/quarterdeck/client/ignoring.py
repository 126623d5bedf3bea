"""Which files a folder's `.gitignore` and `.skillignore` leave out, by git's own rules (gitignore(5), wildmatch.c).

Patterns match bytes, as git's do: `?` is one byte of a name.
"""

import re
from collections.abc import Callable

from msgspec import Struct

# The later wins, so a `.skillignore` can bring back what a `.gitignore` beside it leaves out.
FILES = (".gitignore", ".skillignore")

_ANY_BYTES = range(256)
_CLASSES: dict[bytes, Callable[[str], bool]] = {
    b"alnum": str.isalnum,
    b"alpha": str.isalpha,
    b"blank": lambda c: c in " \t",
    b"cntrl": lambda c: ord(c) < 32 or ord(c) == 127,
    b"digit": str.isdigit,
    b"graph": lambda c: 32 < ord(c) < 127,
    b"lower": str.islower,
    b"print": lambda c: 32 <= ord(c) < 127,
    b"punct": lambda c: 32 < ord(c) < 127 and not c.isalnum(),
    b"space": lambda c: c in " \t\n\v\f\r",
    b"upper": str.isupper,
    b"xdigit": lambda c: c in "0123456789abcdefABCDEF",
}


class _Malformed(Exception):
    """A pattern that matches nothing."""


class Pattern(Struct, frozen=True):
    regex: "re.Pattern[bytes]"
    negated: bool
    directories_only: bool
    # Compared with the whole path below the file's folder, not with the name alone.
    anchored: bool


class Rules(Struct, frozen=True):
    """What one folder's files say. `base` is that folder, as a path with a closing slash, or empty for the root."""

    base: bytes
    patterns: list[Pattern]

    def verdict(self, path: bytes, is_directory: bool) -> bool | None:
        """Whether the path is left out; None when nothing here speaks of it."""
        below = path[len(self.base) :]
        name = path.rpartition(b"/")[2]
        for pattern in reversed(self.patterns):
            if pattern.directories_only and not is_directory:
                continue
            if pattern.regex.fullmatch(below if pattern.anchored else name):
                return not pattern.negated
        return None


def is_left_out(rules: list[Rules], path: bytes, is_directory: bool) -> bool:
    """`rules` are those of the root first. Whoever asks has asked about the folders above before."""
    for each in reversed(rules):
        verdict = each.verdict(path, is_directory)
        if verdict is not None:
            return verdict
    return False


def read_patterns(text: bytes) -> list[Pattern]:
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = [_pattern(line.removesuffix(b"\r")) for line in lines]
    return [pattern for pattern in found if pattern is not None]


def _pattern(line: bytes) -> Pattern | None:
    if line.startswith(b"#"):
        return None
    line = _without_trailing_blanks(line)
    negated = line.startswith(b"!")
    line = line[1:] if negated else line
    directories_only = line.endswith(b"/")
    line = line[:-1] if directories_only else line
    if not line:
        return None
    anchored = b"/" in line
    try:
        source = _translated(line.removeprefix(b"/"))
    except _Malformed:
        return None
    return Pattern(re.compile(source, re.DOTALL), negated, directories_only, anchored)


def _without_trailing_blanks(line: bytes) -> bytes:
    """A blank behind a backslash stays."""
    end, at = 0, 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 2
            end = min(at, len(line))
        else:
            at += 1
            end = at if line[at - 1 : at] != b" " else end
    return line[:end]


def _translated(pattern: bytes) -> bytes:
    """The same as a regular expression."""
    out, at = b"", 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"*":
            piece, at = _stars(pattern, at)
        elif byte == b"?":
            piece, at = b"[^/]", at + 1
        elif byte == b"[":
            piece, at = _bracket(pattern, at)
        elif byte == b"\\":
            if at + 1 == len(pattern):
                raise _Malformed
            piece, at = re.escape(pattern[at + 1 : at + 2]), at + 2
        else:
            piece, at = re.escape(byte), at + 1
        out += piece
    return out


def _stars(pattern: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    rest = pattern[end:]
    # git first takes off what needs no matching, and so sees the stars of `a**/b` at the beginning too.
    alone = pattern[at - 1 : at] == b"/" or not re.search(rb"[*?\[\\]", pattern[:at])
    if end - at >= 2 and alone:
        if not rest:
            return b".*", end
        if rest.startswith(b"/"):
            return b"(?:.*/)?", end + 1
        if rest.startswith(b"\\/"):
            return b".*", end
    return b"[^/]*", end


def _bracket(pattern: bytes, start: int) -> tuple[bytes, int]:
    """A class as the list of its bytes. It never matches a slash."""
    at = start + 1
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    # The byte that a range may begin with.
    previous: int | None = None
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if pattern[at : at + 2] == b"[:" and (named := _named_class(pattern, at)) is not None:
            members, at = named
            found |= members
            previous = None
        elif pattern[at : at + 1] == b"-" and previous is not None and pattern[at + 1 : at + 2] not in (b"", b"]"):
            last, at = _member(pattern, at + 1)
            found |= set(range(previous, last + 1))
            previous = None
        else:
            previous, at = _member(pattern, at)
            found.add(previous)
    allowed = sorted((set(_ANY_BYTES) - found if negated else found) - {ord("/")})
    if not allowed:
        return b"(?!)", at + 1
    return b"[" + b"".join(b"\\x%02x" % byte for byte in allowed) + b"]", at + 1


def _member(pattern: bytes, at: int) -> tuple[int, int]:
    at += pattern[at : at + 1] == b"\\"
    if at >= len(pattern):
        raise _Malformed
    return pattern[at], at + 1


def _named_class(pattern: bytes, at: int) -> tuple[set[int], int] | None:
    """`[:alpha:]` inside of a class; None when it only begins like one."""
    end = pattern.find(b"]", at + 2)
    if end < 0:
        raise _Malformed
    if end - at < 3 or pattern[end - 1 : end] != b":":
        return None
    is_member = _CLASSES.get(pattern[at + 2 : end - 1])
    if is_member is None:
        raise _Malformed
    return {byte for byte in range(128) if is_member(chr(byte))}, end + 1
