"""The `.gitignore` and `.skillignore` files of a skill folder, applied by git's rules.

pathspec translates each pattern. The lookup is ours: git decides folder by folder and never looks inside an ignored
folder, while pathspec decides on whole paths and would let a nested file bring back a file of an ignored folder.
pathspec does not know `[[:alpha:]]`, an escaped `]` in `[…]`, `**` inside a name, and a tab at the end of a name.
"""

import re
import warnings
from pathlib import Path

from msgspec import Struct
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# The last matching pattern wins, so a `.skillignore` can bring back files that the `.gitignore` beside it ignores.
FILE_NAMES = (".gitignore", ".skillignore")


class Pattern(Struct, frozen=True):
    spec: GitIgnoreSpecPattern
    # Whether it is compared with the path below the ignore file's folder instead of the name alone.
    is_anchored: bool


class IgnoreRules(Struct, frozen=True):
    """The patterns of one folder. `base` is the folder's path with a closing slash, or empty for the root."""

    base: bytes
    patterns: list[Pattern]

    def verdict(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Whether the path is ignored. None: no pattern matches."""
        # Latin-1 maps bytes to characters one to one: git's `?` and `[…]` match single bytes too.
        below = path[len(self.base) :].decode("latin-1") + ("/" if is_folder else "")
        name = path.rpartition(b"/")[2].decode("latin-1") + ("/" if is_folder else "")
        for pattern in reversed(self.patterns):
            text = below if pattern.is_anchored else name
            found = pattern.spec.match_file(text)
            # Patterns also match what lies below a matching folder. A group then marks the end of the folder's path.
            if found is not None and (found.match.lastindex is None or found.match.end() == len(text)):
                return pattern.spec.include
        return None


def is_ignored(rules: list[IgnoreRules], path: bytes, *, is_folder: bool) -> bool:
    """`rules` starts with those of the root. The caller has not entered any ignored folder."""
    for each in reversed(rules):
        verdict = each.verdict(path, is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


def read_rules(folder: Path, base: bytes) -> IgnoreRules:
    files = [folder / name for name in FILE_NAMES]
    return IgnoreRules(base, [found for file in files if file.is_file() for found in parse_patterns(file.read_bytes())])


def parse_patterns(content: bytes) -> list[Pattern]:
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    found = (_pattern(line.removesuffix("\r")) for line in lines)
    return [pattern for pattern in found if pattern is not None]


def _pattern(line: str) -> Pattern | None:
    text = line.rstrip(" ")
    if not text.strip("!/"):
        return None
    # Equal for git, but pathspec lets `a/**` match the folder `a` itself.
    spelled_out = re.sub(r"/\*\*(/?)$", r"/**/*\1", text)
    try:
        with warnings.catch_warnings():
            # `[[:alpha:]]`, which pathspec does not know, is a "possible nested set" for `re`.
            warnings.simplefilter("ignore", FutureWarning)
            spec = GitIgnoreSpecPattern(line if spelled_out == text else spelled_out)
    except (GitIgnorePatternError, re.error):
        # git ignores malformed patterns.
        return None
    if spec.include is None:
        return None
    return Pattern(spec, "/" in text.removeprefix("!").removesuffix("/"))
