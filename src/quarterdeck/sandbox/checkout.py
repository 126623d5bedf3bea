"""Makes a folder have the files of a manifest: what is missing or different is written, what is too much is removed."""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import groupby, islice
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import PIECE_BYTES, DamagedBlob
from quarterdeck.blobs.service import open_spool
from quarterdeck.sandbox.beneath import descriptor, make_folders, own
from quarterdeck.sandbox.manifest import FileKind, ManifestFile, StoredFile, parents_of_all
from quarterdeck.sandbox.scan import (
    EPOCH,
    Changed,
    Found,
    Known,
    Signature,
    make_writable,
    open_found,
    open_parts,
    out_of_bounds,
    remove,
    signature_of,
)
from quarterdeck.skills.model import shown

# Contents that are fetched from an object store at the same time. From a folder, one thread is as fast as several: they
# would wait for each other in the file system.
_FETCHES = 8
# Files that a thread writes before it takes others.
_PART = 50
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CheckoutTarget(Struct, frozen=True):
    folder: int
    # The user who gets the files. None: the user of the worker.
    owner: int | None
    blobs: BlobStore
    stopped: Callable[[], bool]


def checkout(target: CheckoutTarget, wanted: list[ManifestFile], known: dict[str, Known]) -> dict[str, Known]:
    """`known`: all files that are in the folder. Returns those that are in it now. After an exception the folder must
    not be used."""
    by_path = {file.path: file for file in wanted}
    kept = {path: one for path, one in known.items() if path in by_path and _is_same(one.file, by_path[path])}
    for path in sorted(known.keys() - kept.keys(), reverse=True):
        _remove(target.folder, path)
    missing = [file for file in wanted if file.path not in kept]
    _remove_emptied(target.folder, known.keys() - kept.keys(), by_path)
    # Folders first, one after the other. Then every file is independent of the others.
    for folder in sorted(parents_of_all(file.path for file in missing)):
        os.close(make_folders(target.folder, folder, target.owner))
    with ThreadPoolExecutor(_FETCHES if target.blobs.is_remote else 1) as threads:
        for written in threads.map(lambda part: _write_part(target, part), _parts(missing)):
            kept |= written
    return kept


def _parts(files: list[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Files of one folder, which is opened once for all of them. Not too many, so that all threads have work."""
    for _, in_folder in groupby(files, lambda file: file.path.rpartition("/")[0]):
        while part := list(islice(in_folder, _PART)):
            yield part


def _is_same(one: StoredFile, other: ManifestFile) -> bool:
    return one == _stored(other)


def _remove(folder: int, path: str) -> None:
    above, _, name = path.rpartition("/")
    with descriptor(_open_writable(folder, above)) as parent:
        remove(parent, name)


def _remove_emptied(folder: int, removed: set[str], wanted: dict[str, ManifestFile]) -> None:
    """Folders whose files are all removed, unless the manifest has them as empty folders."""
    for path in sorted(parents_of_all(removed), reverse=True):
        above, _, name = path.rpartition("/")
        if path in wanted and wanted[path].kind is FileKind.FOLDER:
            continue
        # It has other files, or is gone already.
        with suppress(OSError, Changed), descriptor(_open_writable(folder, above)) as parent:
            os.rmdir(name, dir_fd=parent)


def _open_writable(folder: int, path: str) -> int:
    opened = open_parts(folder, path)
    make_writable(opened)
    return opened


def _write_part(target: CheckoutTarget, part: list[ManifestFile]) -> dict[str, Known]:
    written: dict[str, Known] = {}
    with descriptor(_open_writable(target.folder, part[0].path.rpartition("/")[0])) as parent:
        for file in part:
            if target.stopped():
                raise InterruptedError
            written[file.path] = _write(target, file, parent)
    return written


def _write(target: CheckoutTarget, file: ManifestFile, parent: int) -> Known:
    name = file.path.rpartition("/")[2]
    if file.kind is FileKind.FOLDER:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        own(parent, name, file.mode, target.owner)
    elif file.kind is FileKind.LINK:
        assert file.target is not None
        os.symlink(file.target, name, dir_fd=parent)
        if target.owner is not None:
            os.chown(name, target.owner, target.owner, dir_fd=parent, follow_symlinks=False)
    else:
        _write_content(target, file, parent, name)
    time_ns = (file.modified_at - EPOCH) // timedelta(microseconds=1) * 1000
    os.utime(name, ns=(time_ns, time_ns), dir_fd=parent, follow_symlinks=False)
    return Known(_stored(file), signature_of(os.stat(name, dir_fd=parent, follow_symlinks=False)))


def _write_content(target: CheckoutTarget, file: ManifestFile, parent: int, name: str) -> None:
    blob, digest = file.blob, hashlib.sha256()
    with os.fdopen(os.open(name, _CREATE, 0o600, dir_fd=parent), "wb") as content:
        for piece in target.blobs.pieces(blob):
            if target.stopped():
                raise InterruptedError
            digest.update(piece)
            content.write(piece)
        if target.owner is not None:
            os.fchown(content.fileno(), target.owner, target.owner)
        os.fchmod(content.fileno(), file.mode)
    if digest.hexdigest() != blob.sha256:
        raise DamagedBlob(blob.sha256)


def _stored(file: ManifestFile) -> StoredFile:
    return msgspec.convert(file, StoredFile, from_attributes=True)


# Reads changed files for the store.

# Limits of one batch. Each content is a spool while it is stored: at most one in 256 KiB of them is an open file.
_BATCH_FILES = 1_000
_BATCH_BYTES = 32 * 1024 * 1024


class FileCopy(Struct, frozen=True):
    found: Found
    # Before it was read: a file that changes meanwhile differs from it at the next scan.
    signature: Signature
    sha256: str
    size: int
    # A copy of exactly the bytes that the SHA-256 is of.
    spool: IO[bytes]


def batches(files: list[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + file.signature.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.signature.size
    if batch:
        yield batch


def read_contents(
    folder: int, batch: list[Found], max_bytes: int, spools: Path, stopped: Callable[[], bool]
) -> list[FileCopy]:
    contents: list[FileCopy] = []
    try:
        for found in batch:
            contents.append(_read(folder, found, max_bytes, spools, stopped))
    except BaseException:
        for content in contents:
            content.spool.close()
        raise
    return contents


def _read(folder: int, found: Found, max_bytes: int, spools: Path, stopped: Callable[[], bool]) -> FileCopy:
    digest, size = hashlib.sha256(), 0
    spool = open_spool(spools)
    try:
        with descriptor(open_found(folder, found)) as file:
            signature = signature_of(os.fstat(file))
            while piece := os.read(file, PIECE_BYTES):
                size += len(piece)
                if size > max_bytes:
                    raise out_of_bounds(f'"{shown(found.path)}" has more than {max_bytes} bytes')
                if stopped():
                    raise InterruptedError
                digest.update(piece)
                spool.write(piece)
    except BaseException:
        spool.close()
        raise
    return FileCopy(found, signature, digest.hexdigest(), size, spool)
