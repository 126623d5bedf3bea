"""The folder of a session during one attempt at a run. It has the stored files before every call, and what a call
changes is stored after it."""

import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.blobs.service import NewBlob, open_spool
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.beneath import descriptor, make_folders, own
from quarterdeck.sandbox.folders import Folder, Folders
from quarterdeck.sandbox.model import FileChanges, FileKind, Manifest, ManifestFile, Refusal, StoredFile, parents_of_all
from quarterdeck.sandbox.scan import (
    EPOCH,
    Changed,
    Found,
    Known,
    Scan,
    Signature,
    is_unchanged,
    make_writable,
    modified_at,
    open_found,
    open_parts,
    out_of_bounds,
    remove,
    scan,
    signature_of,
)
from quarterdeck.skills.model import shown

T = TypeVar("T")

# Contents that are fetched from an object store at the same time. From a folder, one thread is as fast as several: they
# would wait for each other in the file system.
_FETCHES = 8
# Files that a thread writes before it takes others.
_PART = 50
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DamagedContent(Exception):
    """The store has another content than the manifest says."""


def checkout(folder: Folder, blobs: BlobStore, wanted: list[ManifestFile]) -> dict[str, Known]:
    """Makes the folder have the files of a manifest: what is missing or different is written, what is too much is
    removed. Returns the files that are in it now. After an exception the folder must not be used."""
    by_path = {file.path: file for file in wanted}
    kept = {
        path: one
        for path, one in folder.files.items()
        if path in by_path and one.file == _without_generation(by_path[path])
    }
    surplus = folder.files.keys() - kept.keys()
    for path in sorted(surplus, reverse=True):
        above, _, name = path.rpartition("/")
        with descriptor(_open_writable(folder, above)) as parent:
            remove(parent, name)
    missing = [file for file in wanted if file.path not in kept]
    _remove_emptied(folder, surplus, by_path)
    # Folders first, one after the other. Then every file is independent of the others.
    for path in sorted(parents_of_all(file.path for file in missing)):
        os.close(make_folders(folder.descriptor, path, folder.owner))
    with ThreadPoolExecutor(_FETCHES if blobs.is_remote else 1) as threads:
        for written in threads.map(lambda part: _write_part(folder, blobs, part), _parts(missing)):
            kept |= written
    return kept


def _parts(files: list[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Files of one folder, which is opened once for all of them. Not too many, so that all threads have work."""
    for _, in_folder in groupby(files, lambda file: file.path.rpartition("/")[0]):
        while part := list(islice(in_folder, _PART)):
            yield part


def _remove_emptied(folder: Folder, removed: set[str], wanted: dict[str, ManifestFile]) -> None:
    """Folders whose files are all removed, unless the manifest has them as empty folders."""
    for path in sorted(parents_of_all(removed), reverse=True):
        above, _, name = path.rpartition("/")
        if path in wanted and wanted[path].kind is FileKind.FOLDER:
            continue
        # It has other files, or is gone already.
        with suppress(OSError, Changed), descriptor(_open_writable(folder, above)) as parent:
            os.rmdir(name, dir_fd=parent)


def _open_writable(folder: Folder, path: str) -> int:
    opened = open_parts(folder.descriptor, path)
    make_writable(opened)
    return opened


def _write_part(folder: Folder, blobs: BlobStore, part: list[ManifestFile]) -> dict[str, Known]:
    written: dict[str, Known] = {}
    with descriptor(_open_writable(folder, part[0].path.rpartition("/")[0])) as parent:
        for file in part:
            folder.check_kept()
            written[file.path] = _write(folder, blobs, file, parent)
    return written


def _write(folder: Folder, blobs: BlobStore, file: ManifestFile, parent: int) -> Known:
    name = file.path.rpartition("/")[2]
    if file.kind is FileKind.FOLDER:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        own(parent, name, file.mode, folder.owner)
    elif file.kind is FileKind.LINK:
        assert file.target is not None
        os.symlink(file.target, name, dir_fd=parent)
        if folder.owner is not None:
            os.chown(name, folder.owner, folder.owner, dir_fd=parent, follow_symlinks=False)
    else:
        _write_content(folder, blobs, file, parent, name)
    time_ns = (file.modified_at - EPOCH) // timedelta(microseconds=1) * 1000
    os.utime(name, ns=(time_ns, time_ns), dir_fd=parent, follow_symlinks=False)
    return Known(_without_generation(file), signature_of(os.stat(name, dir_fd=parent, follow_symlinks=False)))


def _write_content(folder: Folder, blobs: BlobStore, file: ManifestFile, parent: int, name: str) -> None:
    assert file.sha256 is not None
    assert file.generation is not None
    digest = hashlib.sha256()
    with (
        blobs.open(file.sha256, file.generation) as source,
        os.fdopen(os.open(name, _CREATE, 0o600, dir_fd=parent), "wb") as content,
    ):
        while piece := source.read(PIECE_BYTES):
            folder.check_kept()
            digest.update(piece)
            content.write(piece)
        if folder.owner is not None:
            os.fchown(content.fileno(), folder.owner, folder.owner)
        os.fchmod(content.fileno(), file.mode)
    if digest.hexdigest() != file.sha256:
        raise DamagedContent(file.path)


def _without_generation(file: ManifestFile) -> StoredFile:
    return StoredFile(**{field: getattr(file, field) for field in StoredFile.__struct_fields__})


# Limits of one batch of contents for the store. Each is a spool meanwhile: at most one in 256 KiB of them is an open
# file.
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


def read_contents(folder: Folder, batch: list[Found], max_bytes: int, spools: Path) -> list[FileCopy]:
    with ExitStack() as opened:
        contents = [_read(folder, found, max_bytes, opened.enter_context(open_spool(spools))) for found in batch]
        # They stay open.
        opened.pop_all()
    return contents


def _read(folder: Folder, found: Found, max_bytes: int, spool: IO[bytes]) -> FileCopy:
    digest, size = hashlib.sha256(), 0
    with descriptor(open_found(folder.descriptor, found)) as file:
        signature = signature_of(os.fstat(file))
        while piece := os.read(file, PIECE_BYTES):
            size += len(piece)
            if size > max_bytes:
                raise out_of_bounds(f'"{shown(found.path)}" has more than {max_bytes} bytes')
            folder.check_kept()
            digest.update(piece)
            spool.write(piece)
    return FileCopy(found, signature, digest.hexdigest(), size, spool)


class StoredFiles(Protocol):
    """The stored files of one session."""

    @property
    def session_id(self) -> UUID: ...

    @property
    def workspace_id(self) -> UUID: ...

    @property
    def blobs(self) -> BlobStore: ...

    async def revision(self) -> int:
        """Changes with every change of the files."""

    async def manifest(self) -> Manifest: ...

    async def put(self, contents: Mapping[str, NewBlob]) -> None:
        """Stores contents by their SHA-256, for changes that are recorded later."""


class SessionFolder:
    def __init__(self, folders: Folders, stored: StoredFiles, settings: SandboxSettings) -> None:
        # Also for temporary files, and for work in their threads.
        self.folders = folders
        self._stored = stored
        self._settings = settings
        # None: not taken yet, or discarded because it may differ from the stored files.
        self._folder: Folder | None = None
        # The revision before the last change.
        self._base: int | None = None

    async def read(self, work: Callable[[Folder], T]) -> T:
        """Work that only reads, in a thread."""
        folder = await self._ready()
        return await self._run(folder, lambda: work(folder))

    async def write(self, work: Callable[[Folder], T]) -> tuple[T, FileChanges | None, str]:
        """Work that changes files, in a thread. A Refusal of it means that it changed nothing."""

        async def run(folder: Folder) -> T:
            return await self.folders.run(folder, lambda: work(folder))

        return await self.change(run)

    async def change(self, work: Callable[[Folder], Awaitable[T]]) -> tuple[T, FileChanges | None, str]:
        """The result of the work, the changes to be stored with it, and a notice about files that were removed.

        After an error the folder is discarded if it has changed: the next call gets the stored files."""
        folder = await self._ready()
        began_ns = time.time_ns()
        refusal: Refusal | None = None
        try:
            try:
                result = await work(folder)
            except Refusal as fault:
                refusal = fault
            found = await self.folders.run(
                folder, lambda: scan(folder.descriptor, self._settings, folder.owner_id, folder.check_kept)
            )
            changes = await self._collect(folder, found, began_ns)
        except BaseException:
            self.undo()
            raise
        if refusal is not None:
            if changes is not None:
                # For example folders that it made before it failed.
                self.undo()
            raise refusal
        if changes is not None:
            self._base, folder.revision = folder.revision, None
        return result, changes, _notice(found)

    def stored(self, revision: int | None) -> None:
        """The last changes are stored. `revision`: that of the files now, None if it is unknown."""
        if self._folder is not None and self._base is not None and revision == self._base + 1:
            self._folder.revision = revision
        self._base = None

    def undo(self) -> None:
        """The last changes are not stored."""
        if self._folder is not None:
            self.folders.discard(self._folder)
        self._folder = self._base = None

    def close(self) -> None:
        """The attempt is over. A folder with changes that may not be stored is compared with the manifest when it is
        used again."""
        if self._folder is not None:
            self.folders.give_back(self._folder)
        self._folder = None

    async def _ready(self) -> Folder:
        revision = await self._stored.revision()
        if self._folder is None:
            self._folder = self.folders.take(self._stored.session_id, self._stored.workspace_id)
        folder = self._folder
        if folder.revision == revision:
            return folder
        manifest = await self._stored.manifest()
        folder.files = await self._run(folder, lambda: checkout(folder, self._stored.blobs, manifest.files))
        folder.revision = manifest.revision
        return folder

    async def _run(self, folder: Folder, work: Callable[[], T]) -> T:
        try:
            return await self.folders.run(folder, work)
        except Refusal:
            raise
        except BaseException:
            # Cancelled: the thread still works in it. Failed: it may have done a part.
            self.undo()
            raise

    async def _collect(self, folder: Folder, found: Scan, began_ns: int) -> FileChanges | None:
        """Stores new contents. None: nothing changed."""
        known = folder.files
        changed = [one for one in found.found.values() if not is_unchanged(known.get(one.path), one, began_ns)]
        files = {path: one for path, one in known.items() if path in found.found}
        for one in changed:
            if one.kind is not FileKind.FILE:
                files[one.path] = _updated(known.get(one.path), _stored_file(one), one.signature)
        # Contents of stored files are there: their rows refer to them until the changes are stored.
        there = {one.file.sha256 for one in known.values()}
        for batch in batches([one for one in changed if one.kind is FileKind.FILE]):
            for content in await self._store(folder, batch, there):
                file = _stored_file(content.found, content)
                files[file.path] = _updated(known.get(file.path), file, content.signature)
        if sum(one.file.bytes for one in files.values()) > self._settings.all_files_bytes:
            raise out_of_bounds(f"more than {self._settings.all_files_bytes} bytes in all files together")
        stored = {path: one.file for path, one in known.items()}
        written = [one.file for path, one in files.items() if stored.get(path) != one.file]
        deleted = [path for path in known if path not in files]
        folder.files = files
        return FileChanges(written, deleted) if written or deleted else None

    async def _store(self, folder: Folder, batch: list[Found], there: set[str | None]) -> list[FileCopy]:
        """The contents, whose spools are closed. `there`: SHA-256 of contents that need not be stored."""
        contents = await self.folders.run(
            folder, lambda: read_contents(folder, batch, self._settings.file_bytes, self.folders.spools)
        )
        try:
            await self._stored.put(
                {one.sha256: NewBlob(one.spool, one.size) for one in contents if one.sha256 not in there}
            )
        finally:
            for content in contents:
                content.spool.close()
        return contents


def _stored_file(found: Found, content: FileCopy | None = None) -> StoredFile:
    signature = found.signature if content is None else content.signature
    return StoredFile(
        path=found.path,
        kind=found.kind,
        sha256=None if content is None else content.sha256,
        bytes=0 if content is None else content.size,
        mode=signature.mode & 0o777,
        target=found.target,
        modified_at=modified_at(signature),
    )


def _updated(known: Known | None, file: StoredFile, signature: Signature) -> Known:
    """The time of an empty folder is no change: it changes with every temporary file in it."""
    if known is not None and file.kind is known.file.kind is FileKind.FOLDER and file.mode == known.file.mode:
        file = known.file
    return Known(file, signature)


def _notice(found: Scan) -> str:
    if not found.removed_count:
        return ""
    more = found.removed_count - len(found.removed)
    names = ", ".join(found.removed) + (f" and {more} more" if more else "")
    return f"\n[Removed, because it cannot be kept with the files of the session: {names}]"
