"""A skill's folder as a gzipped tar. The same content gives the same bytes, on any day and under any umask: times,
owners and all of the mode but "executable" are left out, and paths are sorted."""

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
from quarterdeck.client.ignoring import FILES, Rules, is_left_out, read_patterns
from quarterdeck.client.transfers import spool

SKILL_MD = "SKILL.md"
_GIT = ".git"
_LEVEL = 6
_PIECE_BYTES = 1024 * 1024


def archive_of(bundle: "str | os.PathLike[str] | bytes | BinaryIO") -> AbstractContextManager[BinaryIO]:
    """What is sent for a bundle: a folder is packed, everything else is an archive already."""
    if isinstance(bundle, bytes):
        return BytesIO(bundle)
    if not isinstance(bundle, (str, os.PathLike)):
        return nullcontext(bundle)
    path = Path(bundle)
    try:
        return pack_folder(path) if path.is_dir() else path.open("rb")
    except FileNotFoundError:
        raise InvalidBundle(f"{path}: there is no such folder or file.") from None
    except OSError as fault:
        raise InvalidBundle(f"{fault.filename or path}: {fault.strerror or fault}.") from None


def pack_folder(folder: Path) -> BinaryIO:
    """The archive, from its beginning. Closing it removes it."""
    files = sorted(bundle_files(folder), key=lambda file: file.name)
    if not any(file.name == SKILL_MD.encode() for file in files):
        why = f"{SKILL_MD} is left out by an ignore file" if (folder / SKILL_MD).exists() else f"it has no {SKILL_MD}"
        raise InvalidBundle(f"{folder}: {why}, and a skill needs one.")
    archive = spool()
    try:
        with gzip.GzipFile("", "wb", _LEVEL, archive, mtime=0) as packed:
            for file in files:
                _add(packed, file)
            packed.write(bytes(2 * tarfile.BLOCKSIZE))
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return archive


class File(Struct, frozen=True):
    # Below the folder, with slashes, as the archive names it.
    name: bytes
    path: Path


def bundle_files(folder: Path) -> Iterator[File]:
    """Every file that belongs to the bundle, by no particular order."""
    root = Path(os.path.realpath(folder))
    yield from _Walk(folder, root).folder(folder, b"", [], (_identity(root),))


class _Walk:
    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def folder(
        self, folder: Path, prefix: bytes, rules: list[Rules], above: tuple[tuple[int, int], ...]
    ) -> Iterator[File]:
        """`above` are the folders that lead here, so that a link back to one of them is seen."""
        own = _rules_of(folder, prefix)
        rules = [*rules, own] if own.patterns else rules
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name == _GIT:
                continue
            path, name = Path(entry.path), prefix + os.fsencode(entry.name)
            # entry.is_dir() raises on a link to itself.
            is_directory = path.is_dir()
            if is_left_out(rules, name, is_directory):
                continue
            if entry.is_symlink():
                self._check_link(path)
            if not is_directory:
                _check_file(path)
                yield File(name, path)
                continue
            here = _identity(path)
            if here in above:
                raise InvalidBundle(f"{path}: the link leads back to a folder that it lies in.")
            yield from self.folder(path, name + b"/", rules, (*above, here))

    def _check_link(self, path: Path) -> None:
        end = Path(os.path.realpath(path))
        if not end.exists():
            raise InvalidBundle(f"{path}: the link leads nowhere.")
        if not end.is_relative_to(self._root):
            raise InvalidBundle(f"{path}: the link leads out of {self._folder}, to {end}.")
        if _GIT in end.relative_to(self._root).parts:
            raise InvalidBundle(f"{path}: the link leads into {_GIT}, which is never packed.")


def _rules_of(folder: Path, prefix: bytes) -> Rules:
    patterns = []
    for name in FILES:
        file = folder / name
        if file.is_file():
            patterns += read_patterns(file.read_bytes())
    return Rules(prefix, patterns)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _check_file(path: Path) -> None:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise InvalidBundle(f"{path}: it is neither a file nor a folder.")


def _add(packed: gzip.GzipFile, file: File) -> None:
    try:
        name = file.name.decode()
    except UnicodeDecodeError:
        raise InvalidBundle(f"{os.fsencode(file.path)!r}: the name is not UTF-8.") from None
    with file.path.open("rb") as content:
        found = os.fstat(content.fileno())
        header = tarfile.TarInfo(name)
        header.size = found.st_size
        header.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        packed.write(header.tobuf(tarfile.PAX_FORMAT))
        left = found.st_size
        while left and (piece := content.read(min(_PIECE_BYTES, left))):
            packed.write(piece)
            left -= len(piece)
        if left or content.read(1):
            raise InvalidBundle(f"{file.path}: it was changed while it was packed.")
    packed.write(bytes(-header.size % tarfile.BLOCKSIZE))
