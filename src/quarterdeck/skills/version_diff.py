"""Compares two versions. Hashes tell which files differ; only those are read, and only if they are small."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.diff import unified_diff
from quarterdeck.skills.model import FileChange, FileDiffBody, SkillDiffBody, SkillFile, WhyNoDiff


class Pair(Struct, frozen=True):
    """The file at one path in both versions; None if absent."""

    base: SkillFile | None
    head: SkillFile | None

    @property
    def sides(self) -> list[SkillFile]:
        return [file for file in (self.base, self.head) if file is not None]

    @property
    def same_content(self) -> bool:
        return self.base is not None and self.head is not None and self.base.sha256 == self.head.sha256


class Comparison(Struct, frozen=True):
    """Two versions of which the content of some files has yet to be read."""

    listed: list[Pair]
    readable: set[Pair]
    truncated: bool

    @property
    def wanted(self) -> dict[str, int]:
        """The SHA-256 and sizes of the contents that are compared."""
        return {file.sha256: file.bytes for pair in self.readable for file in pair.sides}

    def diff(self, base: int, head: int, contents: Mapping[str, bytes]) -> SkillDiffBody:
        """`contents`: those that are wanted, by SHA-256. Takes up to a second."""
        return SkillDiffBody(
            base=base,
            head=head,
            files=[_file_diff(pair, contents if pair in self.readable else None) for pair in self.listed],
            truncated=self.truncated,
        )


def compare(base: Iterable[SkillFile], head: Iterable[SkillFile], limits: BundleSettings) -> Comparison:
    pairs = differing(base, head)
    listed = pairs[: limits.diff_files]
    return Comparison(listed, within_limits(listed, limits), truncated=len(pairs) > len(listed))


def differing(base: Iterable[SkillFile], head: Iterable[SkillFile]) -> list[Pair]:
    """The files that differ, sorted by path."""
    before, after = ({file.path: file for file in files} for files in (base, head))
    pairs = (Pair(before.get(path), after.get(path)) for path in sorted({*before, *after}))
    return [pair for pair in pairs if pair.base != pair.head]


def within_limits(pairs: Iterable[Pair], limits: BundleSettings) -> set[Pair]:
    """The pairs whose content is read: small files, in order, up to the limit for all of them together."""
    chosen: set[Pair] = set()
    left = limits.diff_bytes
    for pair in pairs:
        sizes = [file.bytes for file in pair.sides]
        if not pair.same_content and max(sizes) <= limits.diff_file_bytes and sum(sizes) <= left:
            chosen.add(pair)
            left -= sum(sizes)
    return chosen


def _file_diff(pair: Pair, contents: Mapping[str, bytes] | None) -> FileDiffBody:
    """`contents`: None if the pair is not compared by line."""
    path = pair.sides[0].path
    diff: str | None = "" if pair.same_content else None
    why = None if pair.same_content else WhyNoDiff.TOO_LARGE
    if contents is not None:
        base, head = (None if file is None else contents[file.sha256] for file in (pair.base, pair.head))
        diff = _text_diff(path, base, head)
        why = WhyNoDiff.BINARY if diff is None else None
    return FileDiffBody(
        path=path,
        change=_change(pair),
        base_bytes=None if pair.base is None else pair.base.bytes,
        head_bytes=None if pair.head is None else pair.head.bytes,
        executable_changed=len({file.executable for file in pair.sides}) > 1,
        diff=diff,
        why_no_diff=why,
    )


def _text_diff(path: str, base: bytes | None, head: bytes | None) -> str | None:
    """None if one of them is not text."""
    if any(b"\0" in content for content in (base, head) if content is not None):
        return None
    try:
        old, new = (None if content is None else content.decode() for content in (base, head))
    except UnicodeDecodeError:
        return None
    return unified_diff(path, old, new)


def _change(pair: Pair) -> FileChange:
    if pair.base is None:
        return FileChange.ADDED
    return FileChange.REMOVED if pair.head is None else FileChange.CHANGED
