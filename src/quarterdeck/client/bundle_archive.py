"""Packs a skill folder as a gzipped tar. The same content always gives the same bytes: paths are sorted; times, owners
and all modes except "executable" are left out. `.gitignore` and `.skillignore` apply as in git."""

import gzip
import os
import re
import stat
import tarfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from quarterdeck.client.errors import InvalidBundle
from quarterdeck.client.transfers import Bundle, spool

SKILL_MD = "SKILL.md"
_GIT = ".git"
_GZIP_LEVEL = 6
_CHUNK_BYTES = 1024 * 1024
# pathspec translates each pattern. The lookup is ours: git decides folder by folder and never looks inside an ignored
# folder, while pathspec decides on whole paths and would let a nested file bring back a file of an ignored folder.
# pathspec does not know `[[:alpha:]]`, an escaped `]` in `[…]`, `**` inside a name, and a tab at the end of a name.
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


def open_archive(bundle: Bundle) -> AbstractContextManager[BinaryIO]:
    """The archive of a bundle. A folder is packed; everything else is an archive already."""
    if isinstance(bundle, bytes):
        return BytesIO(bundle)
    if not isinstance(bundle, (str, os.PathLike)):
        return nullcontext(bundle)
    path = Path(bundle)
    try:
        return pack_folder(path) if path.is_dir() else path.open("rb")
    except FileNotFoundError:
        raise InvalidBundle(f"{path}: no such file or folder.") from None
    except OSError as error:
        raise InvalidBundle(f"{error.filename or path}: {error.strerror or error}.") from None


def pack_folder(folder: Path) -> BinaryIO:
    """An open temporary file, which is deleted when it is closed."""
    if not os.path.lexists(folder / SKILL_MD):
        raise InvalidBundle(f"{folder}: no {SKILL_MD} found.")
    files = sorted(bundle_files(folder), key=lambda file: file.name)
    if not any(file.name == SKILL_MD.encode() for file in files):
        raise InvalidBundle(f"{folder}: {SKILL_MD} is ignored by a .gitignore or .skillignore file.")
    archive = spool()
    try:
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, archive, mtime=0) as packed:
            for file in files:
                _add(packed, file)
            packed.write(bytes(2 * tarfile.BLOCKSIZE))
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return archive


class File(Struct, frozen=True):
    # The path below the folder with slashes, as in the archive.
    name: bytes
    path: Path


def bundle_files(folder: Path) -> Iterator[File]:
    """All files of the bundle, in no particular order."""
    root = Path(os.path.realpath(folder))
    yield from _FolderWalk(folder, root).folder(folder, b"", [], (_identity(root),))


class _FolderWalk:
    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def folder(
        self, folder: Path, prefix: bytes, rules: list[IgnoreRules], parents: tuple[tuple[int, int], ...]
    ) -> Iterator[File]:
        """`parents` are the folders above, to detect links that lead back to one of them."""
        own = read_rules(folder, prefix)
        rules = [*rules, own] if own.patterns else rules
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name == _GIT:
                continue
            path, name = Path(entry.path), prefix + os.fsencode(entry.name)
            # Not entry.is_dir(), which raises on a link to itself.
            is_folder = path.is_dir()
            if is_ignored(rules, name, is_folder=is_folder):
                continue
            if entry.is_symlink():
                self._check_link(path)
            if not is_folder:
                _check_file(path)
                yield File(name, path)
                continue
            identity = _identity(path)
            if identity in parents:
                raise InvalidBundle(f"{path}: the link points to a folder that contains it.")
            yield from self.folder(path, name + b"/", rules, (*parents, identity))

    def _check_link(self, path: Path) -> None:
        target = Path(os.path.realpath(path))
        if not target.exists():
            raise InvalidBundle(f"{path}: the link is broken.")
        if not target.is_relative_to(self._root):
            raise InvalidBundle(f"{path}: the link points outside {self._folder}, to {target}.")
        if _GIT in target.relative_to(self._root).parts:
            raise InvalidBundle(f"{path}: the link points into {_GIT}, which is never packed.")


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _check_file(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise InvalidBundle(f"{path}: neither a file nor a folder.")


def _add(packed: gzip.GzipFile, file: File) -> None:
    try:
        name = file.name.decode()
    except UnicodeDecodeError:
        raise InvalidBundle(f"{os.fsencode(file.path)!r}: the file name is not UTF-8.") from None
    with file.path.open("rb") as content:
        found = os.fstat(content.fileno())
        header = tarfile.TarInfo(name)
        header.size = found.st_size
        header.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        packed.write(header.tobuf(tarfile.PAX_FORMAT))
        left = found.st_size
        while left and (chunk := content.read(min(_CHUNK_BYTES, left))):
            packed.write(chunk)
            left -= len(chunk)
        if left or content.read(1):
            raise InvalidBundle(f"{file.path}: the file changed while it was packed.")
    packed.write(bytes(-header.size % tarfile.BLOCKSIZE))
