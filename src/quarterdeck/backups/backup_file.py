"""The file of a backup: a ZIP archive with a manifest, a file per table (PostgreSQL's COPY format), the blobs
(skill archives and files), and the encryption keys. The list of files is at the end of a ZIP archive, so an
incomplete one is noticed.
"""

import fcntl
import hashlib
import os
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from quarterdeck.backups.model import BackupError, BackupManifest, BlobEntry, KeysEntry, Progress, TableEntry

FORMAT = 1
_MANIFEST = "manifest.json"
_PIECE_BYTES = 256 * 1024
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, msgspec.DecodeError, UnicodeError)


class Written(msgspec.Struct, frozen=True):
    bytes: int
    rows: int
    sha256: str


class BackupWriter:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def add(self, name: str, pieces: Iterable[bytes], *, compress: bool) -> Written:
        """`rows` is the number of line ends, which COPY escapes in values."""
        digest, size, rows = hashlib.sha256(), 0, 0
        entry = zipfile.ZipInfo(name, time.gmtime()[:6])
        entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        entry.external_attr = 0o600 << 16
        with self._archive.open(entry, "w", force_zip64=True) as target:
            for piece in pieces:
                target.write(piece)
                digest.update(piece)
                size += len(piece)
                rows += piece.count(b"\n")
        return Written(size, rows, digest.hexdigest())

    def finish(self, manifest: BackupManifest) -> None:
        self.add(_MANIFEST, [msgspec.json.encode(manifest)], compress=True)


@contextmanager
def create_backup(path: Path) -> Iterator[BackupWriter]:
    """The file gets its name when it is complete. Before that it ends with `.part`."""
    if path.exists():
        raise BackupError(f"{path} already exists. Choose another name.")
    draft = path.with_name(f"{path.name}.part")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup is writing {draft}. Choose another name.") from None
        try:
            os.fchmod(descriptor, 0o600)
            file.truncate(0)
            with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
                yield BackupWriter(archive)
            file.flush()
            os.fsync(descriptor)
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


class BackupReader:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        with self.damage_reported():
            found = msgspec.json.decode(archive.read(_MANIFEST), type=dict[str, object])
            if found.get("format") != FORMAT:
                raise BackupError(f"{path} was made by a newer release ({found.get('release')}). Upgrade this one.")
            self.manifest = msgspec.convert(found, BackupManifest)

    def read(self, entry: TableEntry | BlobEntry | KeysEntry) -> Iterator[bytes]:
        with self.damage_reported(), self._archive.open(entry.file) as source:
            while piece := source.read(_PIECE_BYTES):
                yield piece

    def check(self, progress: Progress) -> None:
        """Reads everything and compares it with the manifest."""
        done, total = 0, self.manifest.bytes
        for entry in self.manifest.entries:
            digest, size = hashlib.sha256(), 0
            for piece in self.read(entry):
                digest.update(piece)
                size += len(piece)
                progress(done + size, total)
            done += size
            if (size, digest.hexdigest()) != (entry.bytes, entry.sha256):
                raise BackupError(f"{self._path} is damaged: {entry.file} does not match the manifest.")

    @contextmanager
    def damage_reported(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as fault:
            raise _damaged(self._path) from fault


@contextmanager
def open_backup(path: Path) -> Iterator[BackupReader]:
    with path.open("rb") as file, _zip(path, file) as archive:
        yield BackupReader(path, archive)


def _zip(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _DAMAGE as fault:
        raise _damaged(path) from fault


def _damaged(path: Path) -> BackupError:
    return BackupError(f"{path} is not a backup, or is incomplete or damaged.")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
