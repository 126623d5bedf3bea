"""Compares two versions. Hashes tell which files differ; only those are read, and only if they are small."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.bundle_files import take_files
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.diff import unified_diff
from quarterdeck.skills.model import (
    Archive,
    FileChange,
    FileDiffBody,
    Manifest,
    ManifestFile,
    SkillDiffBody,
    StoredVersion,
    WhyNoDiff,
)


class Pair(Struct, frozen=True):
    """The file at one path in both versions; None if absent."""

    base: ManifestFile | None
    head: ManifestFile | None

    @property
    def sides(self) -> list[ManifestFile]:
        return [file for file in (self.base, self.head) if file is not None]

    @property
    def same_content(self) -> bool:
        return self.base is not None and self.head is not None and self.base.sha256 == self.head.sha256


def compare(bundles: BundleStore, base: StoredVersion, head: StoredVersion, limits: BundleSettings) -> SkillDiffBody:
    """Blocking: reads two archives. Run it in a thread."""
    pairs = differing(_manifest(base), _manifest(head))
    listed = pairs[: limits.diff_files]
    readable = within_limits(listed, limits)
    before = _contents(bundles, base.archive, (pair.base for pair in readable), limits)
    after = _contents(bundles, head.archive, (pair.head for pair in readable), limits)
    return SkillDiffBody(
        base=base.body.version,
        head=head.body.version,
        files=[_file_diff(pair, pair in readable, before, after) for pair in listed],
        truncated=len(pairs) > len(listed),
    )


def differing(base: Manifest, head: Manifest) -> list[Pair]:
    """The files that differ, sorted by path."""
    before, after = ({file.path: file for file in manifest.files} for manifest in (base, head))
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


def _contents(
    bundles: BundleStore, archive: Archive, files: Iterable[ManifestFile | None], limits: BundleSettings
) -> dict[str, bytearray]:
    wanted = {file: bytearray() for file in files if file is not None}
    if wanted:
        take_files(bundles, archive, {file: content.extend for file, content in wanted.items()}, limits)
    return {file.path: content for file, content in wanted.items()}


def _file_diff(pair: Pair, readable: bool, before: dict[str, bytearray], after: dict[str, bytearray]) -> FileDiffBody:
    path = pair.sides[0].path
    diff: str | None = "" if pair.same_content else None
    why = None if pair.same_content else WhyNoDiff.TOO_LARGE
    if readable:
        diff = _text_diff(path, before.get(path), after.get(path))
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


def _text_diff(path: str, base: bytearray | None, head: bytearray | None) -> str | None:
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


def _manifest(version: StoredVersion) -> Manifest:
    return msgspec.json.decode(version.body.manifest, type=Manifest)
