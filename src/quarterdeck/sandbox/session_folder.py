"""The folder of a session during one attempt at a run. It has the stored files before every call."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar
from uuid import UUID

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.checkout import CheckoutTarget, FileCopy, batches, checkout, read_contents
from quarterdeck.sandbox.folders import Folder, Folders
from quarterdeck.sandbox.manifest import FileChanges, FileKind, Manifest, StoredFile
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.scan import Found, Known, Scan, Signature, is_unchanged, modified_at, out_of_bounds, scan

T = TypeVar("T")


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
            found = await self._scan(folder)
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
        target = CheckoutTarget(folder.descriptor, folder.owner, self._stored.blobs, folder.is_discarded)
        folder.files = await self._run(folder, lambda: checkout(target, manifest.files, folder.files))
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

    async def _scan(self, folder: Folder) -> Scan:
        return await self.folders.run(
            folder, lambda: scan(folder.descriptor, self._settings, folder.owner_id, folder.is_discarded)
        )

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
        written = [one.file for path, one in files.items() if not _is_stored(known.get(path), one)]
        deleted = [path for path in known if path not in files]
        folder.files = files
        return FileChanges(written, deleted) if written or deleted else None

    async def _store(self, folder: Folder, batch: list[Found], there: set[str | None]) -> list[FileCopy]:
        """The contents, whose spools are closed. `there`: SHA-256 of contents that need not be stored."""
        contents = await self.folders.run(
            folder,
            lambda: read_contents(
                folder.descriptor, batch, self._settings.file_bytes, self.folders.spools, folder.is_discarded
            ),
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


def _is_stored(known: Known | None, one: Known) -> bool:
    return known is one or (known is not None and known.file == one.file)


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
