"""The files of a session, and which paths and links are stored. Pure functions, no I/O."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from uuid import UUID

from msgspec import Struct

from quarterdeck.blobs.model import Blob
from quarterdeck.core.pages import MAX_PATH_BYTES


class FileKind(StrEnum):
    FILE = "file"
    LINK = "link"
    # Stored only while it is empty.
    FOLDER = "folder"


class StoredFile(Struct, frozen=True, kw_only=True):
    # Relative to the session's folder, with `/` between its parts.
    path: str
    kind: FileKind
    # In hex. None: not a file.
    sha256: str | None
    bytes: int
    # Permission bits.
    mode: int
    # The target of a link: a relative path that stays inside the folder.
    target: str | None
    modified_at: datetime


class ManifestFile(StoredFile, frozen=True, kw_only=True):
    """A file of a manifest: with `generation`, its content can be read from the store."""

    # None: not a file.
    generation: UUID | None

    @property
    def blob(self) -> Blob:
        """Of a file."""
        assert self.sha256 is not None
        assert self.generation is not None
        return Blob(self.sha256, self.generation)


class Manifest(Struct, frozen=True):
    # Number of changes of the session's files so far.
    revision: int
    # By path. No file lies at the path of a folder.
    files: list[ManifestFile]


class FileChanges(Struct, frozen=True):
    """What a tool call changed. The contents of written files are in the store."""

    written: list[StoredFile]
    deleted: list[str]


# Which paths and links are stored. Pure functions, no I/O.

# PostgreSQL refuses index entries of more than 2,700 bytes.
PATH_BYTES = MAX_PATH_BYTES
# The limit of Linux file systems.
NAME_BYTES = 255
# The limit of Linux for a link.
TARGET_BYTES = 4095


class InvalidPath(Exception):
    """The text says what is wrong, without the path."""


class PathConflict(Exception):
    """A file or link would lie at the path of a folder that has files."""


def check_path(path: str) -> None:
    """Paths are relative, with `/` between their parts, in exactly one spelling."""
    size = _storable_bytes(path)
    if size > PATH_BYTES:
        raise InvalidPath(f"it is longer than {PATH_BYTES} bytes")
    if path.startswith("/"):
        raise InvalidPath("it is not relative")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise InvalidPath("it has a part that is empty, `.` or `..`")
        if len(part.encode()) > NAME_BYTES:
            raise InvalidPath(f"a part is longer than {NAME_BYTES} bytes")


def check_target(path: str, target: str) -> None:
    """A link at `path` must point into the session's folder. Other links on the way are not followed here, so a reader
    of files still opens them beneath the folder."""
    size = _storable_bytes(target)
    if not 0 < size <= TARGET_BYTES:
        raise InvalidPath(f"its target is empty or longer than {TARGET_BYTES} bytes")
    resolve_target(path, target)


def resolve_target(path: str, target: str) -> str:
    """The path that a link at `path` points to. Empty: the session's folder itself."""
    if target.startswith("/"):
        raise InvalidPath("its target is not relative")
    parts = path.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                raise InvalidPath("its target is outside the folder of the session")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def parents(path: str) -> list[str]:
    """`a/b/c` → `a`, `a/b`."""
    return list(accumulate(path.split("/")[:-1], "{}/{}".format))


def parents_of_all(paths: Iterable[str]) -> set[str]:
    # Folders first: many files have the same parents.
    folders = {path.rpartition("/")[0] for path in paths} - {""}
    return folders.union(*(parents(folder) for folder in folders))


def check_changes(changes: FileChanges) -> None:
    """Whether the changes fit together. Whether they fit to the stored files is known only to the database."""
    kinds: dict[str, FileKind] = {}
    for file in changes.written:
        check_path(file.path)
        if file.target is not None:
            check_target(file.path, file.target)
        if file.path in kinds:
            raise PathConflict("A path is written twice.")
        kinds[file.path] = file.kind
    if not kinds.keys().isdisjoint(changes.deleted):
        raise PathConflict("A path is written and deleted.")
    if not kinds.keys().isdisjoint(parents_of_all(kinds)):
        raise PathConflict("A path is written as a file and as a folder with files.")


def _storable_bytes(text: str) -> int:
    if "\0" in text:
        raise InvalidPath("it contains U+0000")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidPath("it is not valid UTF-8") from None
