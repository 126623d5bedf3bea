"""Packs a skill folder as a gzipped tar. The same content always gives the same bytes: paths are sorted; times, owners
and all modes except "executable" are left out."""

import gzip
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from quarterdeck.client.errors import InvalidBundle
from quarterdeck.client.gitignore import IgnoreRules, is_ignored, read_rules
from quarterdeck.client.transfers import spool

SKILL_MD = "SKILL.md"
_GIT = ".git"
_GZIP_LEVEL = 6
_CHUNK_BYTES = 1024 * 1024


def open_archive(bundle: "str | os.PathLike[str] | bytes | BinaryIO") -> AbstractContextManager[BinaryIO]:
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
    yield from _Walk(folder, root).folder(folder, b"", [], (_identity(root),))


class _Walk:
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
